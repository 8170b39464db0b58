"""Runs redis-py with its default options against a proxy:

    python3 check.py PORT LOCKED_PORT PASSWORD

It ends with status 0 when everything was answered as one Redis answers.
"""
import sys

import redis

port, locked_port, password = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


def exercise(client):
    keys = [f"key:{i}" for i in range(300)]
    pipe = client.pipeline(transaction=False)
    for i, key in enumerate(keys):
        pipe.set(key, i)
    assert pipe.execute() == [True] * len(keys)
    assert client.mget("key:1", "nothing", "key:299") == ["1", None, "299"]
    assert client.mset({"a": 1, "b": 2, "c": 3})
    assert client.exists("a", "b", "c", "nothing") == 3
    assert client.hset("hash", mapping={"f": "v", "g": "w"}) == 2
    assert client.hgetall("hash") == {"f": "v", "g": "w"}
    client.zadd("z", {"m": 1.5})
    assert client.zscore("z", "m") == 1.5
    assert len(set(client.scan_iter("key:*", count=50))) == len(keys)
    assert client.register_script("return ARGV[1]")(keys=["k"], args=["v"]) == "v"
    with client.pipeline() as pipe:
        assert pipe.set("{t}a", 1).incr("{t}a").execute() == [True, 2]
    try:
        client.sinter("a", "b")
        raise AssertionError("keys of two slots were accepted")
    except redis.ResponseError as error:
        assert "CROSSSLOT" in str(error) or "hash to the same slot" in str(error), error
    assert client.info("server")["redis_version"].startswith("7.")
    assert client.delete(*keys, "a", "b", "c", "hash", "z", "{t}a") == len(keys) + 6
    assert client.dbsize() == 0
    with client.pubsub() as news:
        news.subscribe("news")
        assert news.get_message(timeout=10)["type"] == "subscribe"
        assert client.publish("news", "text") == 1
        assert news.get_message(timeout=10)["data"] == "text"


exercise(redis.Redis(port=port, decode_responses=True))
exercise(redis.Redis(port=locked_port, password=password, db=3, client_name="app", health_check_interval=1, decode_responses=True))
try:
    redis.Redis(port=locked_port, password="wrong").ping()
    raise AssertionError("a wrong password was accepted")
except redis.ResponseError as error:
    assert "WRONGPASS" in str(error), error
print("ok redis-py", redis.__version__)
