package store

// Keys, relative to /shardis/<cluster>/. See docs/ARCHITECTURE.md for who
// writes which.
const (
	KeyMeta     = "meta"     // topo.Meta
	KeyTopology = "topology" // topo.Topology

	PrefixProxies     = "proxies/"      // <id> → topo.ProxyRecord, under the proxy's lease
	PrefixCredentials = "credentials/"  // <id> → topo.Credential
	PrefixEvicted     = "evicted/"      // <proxy id>/<incarnation> → topo.Evicted, for ever
	KeySubmitted      = "submitted"     // id of the last migration submitted: submissions go one after another
	PrefixOperations  = "operations/"   // <id> → topo.Operation
	PrefixControls    = "controls/"     // <operation id> → topo.Control
	PrefixPlans       = "plans/"        // <id> → topo.Plan, under a lease of 1 h
	PrefixAttempts    = "attempts/"     // <id> → topo.Attempt
	PrefixPurges      = "purges/"       // <group>/<attempt> → topo.Purge
	PrefixObserved    = "observed/"     // <group> → topo.Observed
	PrefixInSync      = "insync/"       // <group> → topo.InSync
	KeySettings       = "settings"      // topo.Settings
	PrefixSecrets     = "secrets/"      // <group> → topo.Secret
	PrefixClientUsers = "client-users/" // <name> → topo.ClientUser
	PrefixUsers       = "users/"        // the dashboard's
	PrefixTokens      = "tokens/"       // the dashboard's
	PrefixSessions    = "sessions/"     // the dashboard's
	PrefixSetup       = "setup/"        // the dashboard's: one-time tokens for the first user
	PrefixAudit       = "audit/"        // the dashboard's and the leader's
	PrefixIdempotency = "idempotency/"  // the dashboard's, under a lease of 24 h
	PrefixElection    = "election/"     // etcd's own election
)
