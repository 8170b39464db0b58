// Runs ioredis and node-redis with their default options against a proxy:
//
//   node check.mjs PORT LOCKED_PORT PASSWORD
//
// It ends with status 0 when everything was answered as one Redis answers.
import assert from 'node:assert/strict'
import Redis from 'ioredis'
import { createClient } from 'redis'

const [port, lockedPort, password] = process.argv.slice(2)
const keys = Array.from({ length: 300 }, (_, i) => `key:${i}`)

const timer = setTimeout(() => {
  console.error('no answer within 60 s')
  process.exit(1)
}, 60_000)

async function ioredis(options) {
  const client = new Redis({ host: '127.0.0.1', maxRetriesPerRequest: 1, ...options })
  const problems = []
  client.on('error', (error) => problems.push(error))
  await new Promise((resolve, reject) => {
    client.once('ready', resolve)
    client.once('close', () => reject(problems[0] ?? new Error('ioredis: closed')))
  })
  const pipeline = client.pipeline()
  keys.forEach((key, i) => pipeline.set(key, i))
  for (const [error, reply] of await pipeline.exec()) {
    assert.equal(error, null)
    assert.equal(reply, 'OK')
  }
  assert.deepEqual(await client.mget('key:1', 'nothing', 'key:299'), ['1', null, '299'])
  await client.mset({ a: 1, b: 2, c: 3 })
  assert.equal(await client.exists('a', 'b', 'c', 'nothing'), 3)
  await client.hset('hash', { f: 'v' })
  assert.deepEqual({ ...(await client.hgetall('hash')) }, { f: 'v' })
  const found = new Set()
  for await (const page of client.scanStream({ match: 'key:*', count: 50 })) page.forEach((key) => found.add(key))
  assert.equal(found.size, keys.length)
  client.defineCommand('second', { numberOfKeys: 1, lua: 'return ARGV[1]' })
  assert.equal(await client.second('k', 'v'), 'v')
  await assert.rejects(client.sinter('a', 'b'), /CROSSSLOT/)
  assert.deepEqual(await client.multi().set('{t}a', 1).incr('{t}a').del('{t}a').exec(), [[null, 'OK'], [null, 2], [null, 1]])
  const subscriber = client.duplicate()
  const message = new Promise((resolve) => subscriber.on('message', (channel, text) => resolve([channel, text])))
  await subscriber.subscribe('news')
  assert.equal(await client.publish('news', 'text'), 1)
  assert.deepEqual(await message, ['news', 'text'])
  await subscriber.quit()
  assert.equal(await client.del(...keys, 'a', 'b', 'c', 'hash'), keys.length + 4)
  await client.quit()
  assert.deepEqual(problems, [])
}

async function nodeRedis(options) {
  const client = createClient({ socket: { host: '127.0.0.1', port: options.port }, ...options.client })
  const problems = []
  client.on('error', (error) => problems.push(error))
  await client.connect()
  await Promise.all(keys.map((key, i) => client.set(key, String(i))))
  assert.deepEqual(await client.mGet(['key:1', 'nothing', 'key:299']), ['1', null, '299'])
  await client.hSet('hash', 'f', 'v')
  assert.equal((await client.hGetAll('hash')).f, 'v')
  await client.zAdd('z', [{ score: 1.5, value: 'm' }])
  assert.equal(await client.zScore('z', 'm'), 1.5)
  const found = new Set()
  for await (const page of client.scanIterator({ MATCH: 'key:*', COUNT: 50 })) [page].flat().forEach((key) => found.add(key))
  assert.equal(found.size, keys.length)
  assert.match(await client.info(), /loading:0/)
  assert.equal(await client.eval('return ARGV[1]', { keys: ['k'], arguments: ['v'] }), 'v')
  await assert.rejects(client.sInter(['a', 'b']), /CROSSSLOT/)
  assert.deepEqual(await client.multi().set('{t}a', '1').incr('{t}a').del('{t}a').exec(), ['OK', 2, 1])
  const subscriber = await client.duplicate().connect()
  const message = new Promise((resolve) => subscriber.subscribe('news', resolve).then(() => client.publish('news', 'text')))
  assert.equal(await message, 'text')
  await subscriber.close()
  assert.equal(await client.del([...keys, 'hash', 'z']), keys.length + 2)
  await client.close()
  assert.deepEqual(problems, [])
}

const checks = {
  'ioredis': () => ioredis({ port }),
  'ioredis with RESP2': () => ioredis({ port, protocol: 2 }),
  'ioredis with password, db and name': () => ioredis({ port: lockedPort, password, db: 3, connectionName: 'app' }),
  'node-redis': () => nodeRedis({ port }),
  'node-redis with RESP2': () => nodeRedis({ port, client: { RESP: 2 } }),
  'node-redis with password, db and name': () =>
    nodeRedis({ port: lockedPort, client: { password, database: 3, name: 'app' } }),
}
for (const [name, check] of Object.entries(checks)) {
  try {
    await check()
    console.log(`ok ${name}`)
  } catch (error) {
    console.error(`failed: ${name}:`, error)
    process.exitCode = 1
  }
}
clearTimeout(timer)
if (process.exitCode) process.exit()
