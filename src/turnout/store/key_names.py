"""The name of every key in Redis. No other module builds one.

Scripts have the same in `store/names.lua`; a test compares the two. All keys start with one prefix, and scripts derive names from it, so
one Redis (not a Cluster) holds everything. Each method says what the key holds, who writes and reads it, how long it lives; R: retention of tasks.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyNames:
    prefix: str

    def pattern(self) -> str:
        """Of all names, as SCAN takes it."""
        prefix = "".join(f"\\{c}" if c in "*?[]\\" else c for c in self.prefix)
        return f"{prefix}:*"

    def without_prefix(self, name: str) -> str:
        return name[len(self.prefix) + 1 :]

    def with_prefix(self, name: str) -> str:
        return f"{self.prefix}:{name}"

    # Tasks

    def task(self, task: str) -> str:
        """Hash: v, doc, tenant, model, state, place, labels; turn and gang while claimed. Gateway, gang, manager. 2 R, R once ended."""
        return f"{self.prefix}:task:{task}"

    def task_events(self, task: str) -> str:
        """Stream of the task's events. Written with the task, read by gateways. As long as the task."""
        return f"{self.prefix}:events:{task}"

    def all_events(self) -> str:
        """Stream of all tasks' events, about 100,000. Written with each task, tailed by gateways. For ever."""
        return f"{self.prefix}:events"

    def tasks_of(self, tenant: str) -> str:
        """Sorted set of the tenant's task ids by time. Gateway writes and reads. 2 R after the last submission."""
        return f"{self.prefix}:of:{tenant}"

    def shares(self, task: str) -> str:
        """Hash: share by its id. Gateway writes and reads. 31 days after the last one was made."""
        return f"{self.prefix}:shares:{task}"

    def presets(self, owner: str) -> str:
        """Hash of settings of videos by name, 50 at most. Gateway writes and reads. Until deleted, or their owner is."""
        return f"{self.prefix}:presets:{owner}"

    def urls_revoked(self, task: str) -> str:
        """Until when its signed URLs are revoked. Gateway writes and reads. 31 days."""
        return f"{self.prefix}:revoked:{task}"

    def url_secret(self) -> str:
        """What signs URLs, 32 random bytes. The first to ask writes, gateways and manager read. For ever."""
        return f"{self.prefix}:url_secret"

    def idempotency(self, tenant: str, key: str) -> str:
        """Hash: digest, task. Gateway writes and reads. 2 R, as long as a task may live."""
        return f"{self.prefix}:idem:{tenant}:{key}"

    def submissions(self, tenant: str, minute: str) -> str:
        """Number of submissions in that minute. Gateway writes and reads. 2 minutes."""
        return f"{self.prefix}:rate:{tenant}:{minute}"

    def counts(self, tenant: str) -> str:
        """Hash: running, waiting. Written with each task, read at submission and claim. 2 R after the last submission."""
        return f"{self.prefix}:counts:{tenant}"

    def totals(self) -> str:
        """Hash of tasks by state. Written with each task, read by gateways for metrics. For ever."""
        return f"{self.prefix}:totals"

    def places(self) -> str:
        """Number of the last submission; orders tasks of one tenant. Gateway writes. For ever."""
        return f"{self.prefix}:places"

    # Queues

    def queues(self) -> str:
        """Set of models that ever had a task. Gateway writes, manager reads and removes. For ever."""
        return f"{self.prefix}:queues"

    def queue(self, model: str) -> str:
        """Stream with an entry (a turn) for each unfinished task; gangs are its consumers. Until the model is forgotten."""
        return f"{self.prefix}:queue:{model}"

    def bound(self, model: str) -> str:
        """Hash of task ids by claimed turn. Gang writes, manager and workers read. As long as the queue."""
        return f"{self.prefix}:bound:{model}"

    def tenants(self, model: str) -> str:
        """Sorted set of tenants with waiting tasks by fairness tag. Gateway and gang write and read. While tasks wait."""
        return f"{self.prefix}:tenants:{model}"

    def waiting(self, model: str, tenant: str) -> str:
        """Sorted set of the tenant's waiting tasks by priority and age. Gateway and gang write and read. While tasks wait."""
        return f"{self.prefix}:waiting:{model}:{tenant}"

    def served(self, model: str) -> str:
        """Sorted set of the tenants served last, by the tag at which they go on. Gang writes, gateway reads. As the queue."""
        return f"{self.prefix}:served:{model}"

    def clock(self, model: str) -> str:
        """Highest fairness tag served: where a new tenant begins. Gang writes, gateway reads. As the queue."""
        return f"{self.prefix}:clock:{model}"

    def unfinished(self, model: str) -> str:
        """Sorted set of unfinished tasks by time of submission. Written with each task, read by manager. While there are any."""
        return f"{self.prefix}:unfinished:{model}"

    def paces(self) -> str:
        """Hash: how fast each model makes videos, by kind, 48 of them. Gateways write and read. As the queue."""
        return f"{self.prefix}:paces"

    def closed(self, gang: str) -> str:
        """There while the gang may claim nothing. Gateways write for its worker, read at claims. 2 hours."""
        return f"{self.prefix}:closed:{gang}"

    def claiming(self, gang: str) -> str:
        """Which call may claim for the gang: the last one. Gateways write, read at claims. 2 hours."""
        return f"{self.prefix}:claiming:{gang}"

    def gangs(self) -> str:
        """Hash of reports by gang. Gangs on Ray write, gateway and the Ray manager read. A report counts for 10 s."""
        return f"{self.prefix}:gangs"

    def jobs_made(self) -> str:
        """Hash of the highest number that a job of each model had. The launcher writes and reads. For ever."""
        return f"{self.prefix}:jobs:made"

    def gang_waits(self) -> str:
        """Since when models wait for a place on Ray and gangs there are not needed. The Ray manager writes and reads. 1 minute, renewed."""
        return f"{self.prefix}:gangs:turns"

    def dead(self) -> str:
        """Hash of copies of records that could not be read, by kind and name, 1,000 at most. All write, operators read. Until dropped."""
        return f"{self.prefix}:dead"

    # Webhooks

    def outbox(self) -> str:
        """Sorted set of webhooks to be sent, by time: ids of tasks, and of `webhook_messages`. Written with the task's end, and by manager, which reads. Until sent."""
        return f"{self.prefix}:outbox"

    def webhook_messages(self) -> str:
        """Hash of webhooks that are of no task, by id. Manager writes and reads. Until sent."""
        return f"{self.prefix}:webhook_messages"

    def webhook_tries(self, entry: str) -> str:
        """Number of failed tries. Manager writes and reads. 7 days after the last."""
        return f"{self.prefix}:webhook:{entry}"

    def webhook_secret(self) -> str:
        """What signs webhooks of tenants without a secret of their own, in clear. The first manager writes, managers read. For ever."""
        return f"{self.prefix}:webhook_secret"

    def webhook_secrets(self) -> str:
        """Hash of webhook secrets by tenant, in clear. Gateway writes, manager and gateway read. For ever."""
        return f"{self.prefix}:webhook_secrets"

    # Tenants

    def keys(self) -> str:
        """Hash of API keys by id. Gateway and `turnout keys` write, gateway reads. Until revoked."""
        return f"{self.prefix}:keys"

    def bootstrapped(self) -> str:
        """Set of ids of API keys that the bootstrap on Kubernetes added, also once. It writes and reads. For ever."""
        return f"{self.prefix}:keys:bootstrapped"

    def session(self, session: str) -> str:
        """Hash: key (as in `keys`), parent, agent, address. Gateway writes and reads. Until the session ends, 30 days at most."""
        return f"{self.prefix}:session:{session}"

    def sessions_of(self, root: str) -> str:
        """Sorted set of the sessions of a person, or of a key, by their end. Gateway writes and reads. As long as the last one."""
        return f"{self.prefix}:sessions:{root}"

    def people(self) -> str:
        """Sorted set of the ids of people by when they came. Gateway writes and reads. Until they are removed."""
        return f"{self.prefix}:people"

    def guests(self) -> str:
        """Sorted set of the ids of guests by when their time is over. Gateway writes, manager reads. Until they are removed."""
        return f"{self.prefix}:guests"

    def person(self, person: str) -> str:
        """Hash: doc, seen, and `key:ID` for each of her keys. Gateway writes and reads. Until she is removed."""
        return f"{self.prefix}:person:{person}"

    def person_by(self, subject: str) -> str:
        """Id of the person whom an issuer calls so; by digest. Gateway writes and reads. Until she is removed."""
        return f"{self.prefix}:person_by:{subject}"

    def invites(self) -> str:
        """Hash of invites by id. Gateway writes and reads. Until revoked, or long over."""
        return f"{self.prefix}:invites"

    def invite_uses(self) -> str:
        """Hash of how often invites were used, by id. Gateway writes and reads. As the invite."""
        return f"{self.prefix}:invite_uses"

    def allowance(self, account: str, day: str) -> str:
        """Hash: videos, chats that were asked for on that day. Gateway writes and reads. 2 days."""
        return f"{self.prefix}:allowance:{day}:{account}"

    def join_code(self, digest: str) -> str:
        """Id of the key that made the code. Gateways write and read. 15 minutes, or as the admin says."""
        return f"{self.prefix}:join:{digest}"

    def join_code_used(self, digest: str) -> str:
        """Digest of what the machine made up that used the code. Gateways write and read. 1 day."""
        return f"{self.prefix}:joined:{digest}"

    def login_flow(self, digest: str) -> str:
        """A login that is on its way to the issuer and back. Gateway writes, gateway takes. 10 minutes."""
        return f"{self.prefix}:oidc:{digest}"

    def login_code(self, digest: str) -> str:
        """Id of the key, or of the person, that the code logs in as. Gateway and `turnout up` write, gateway takes. 15 minutes at most."""
        return f"{self.prefix}:code:{digest}"

    def audit(self) -> str:
        """Stream of acts on keys, models and workers, about 20,000. Gateways and `turnout keys` write, gateways read. For ever."""
        return f"{self.prefix}:audit"

    def chat_account(self, tenant: str) -> str:
        """Hash: at, r (requests), t (tokens) left. Gateways write and read. Until it would be full again."""
        return f"{self.prefix}:chat:account:{tenant}"

    def chat_permits(self, tenant: str) -> str:
        """Hash of lent permits and their end by gateway. Gateways write and read. 10 s."""
        return f"{self.prefix}:chat:slots:{tenant}"

    def usage_of(self, day: str, tenant: str) -> str:
        """Hash of amounts by figure:model. Gateways and gangs write, gateways read. 400 days."""
        return f"{self.prefix}:usage:of:{day}:{tenant}"

    def history(self, interval: int) -> str:
        """Hash: what the service did in that half minute. Gateways write and read. 25 hours."""
        return f"{self.prefix}:history:{interval}"

    def usage_day(self, day: str) -> str:
        """Set of tenants that used something. Gateways and gangs write, gateways read. 400 days."""
        return f"{self.prefix}:usage:day:{day}"

    def usage_batch(self, batch: str) -> str:
        """There once a gateway's batch was counted. Gateways write and read. 1 hour."""
        return f"{self.prefix}:usage:batch:{batch}"

    def gpu_models(self, day: str) -> str:
        """Hash of GPU time in ms by state:kind:model, of `share:state:model`: what of it is divided, and of `work::model`: tenants' work_ms. Manager, gateways and gangs write, gateways and manager read. 400 days."""
        return f"{self.prefix}:usage:gpu:{day}"

    def gpu_workers(self, day: str) -> str:
        """Hash of GPU time in ms by state:kind:worker. Manager writes, gateways read. 93 days."""
        return f"{self.prefix}:usage:gpu:{day}:workers"

    def gpu_booked(self, month: str, worker: str) -> str:
        """Hash of one worker's GPU time in ms by day:state:kind:model, so that it can be taken back. Manager writes, gateways take back. 63 days."""
        return f"{self.prefix}:usage:gpu:{month}:of:{worker}"

    def gpu_undivided(self) -> str:
        """Hash of booked GPU time in ms by day:state:model that is no tenant's yet. Manager writes and reads, gateways read. Until divided."""
        return f"{self.prefix}:usage:gpu:undivided"

    def gpu_work(self) -> str:
        """Hash of work in ms by tenant:model that GPU time was not divided by yet. Gateways and gangs write, manager reads. Until divided, 1 day at most."""
        return f"{self.prefix}:usage:gpu:work"

    def gpu_users(self) -> str:
        """Hash of who worked on a model last, by model. Manager writes and reads. As long as the model."""
        return f"{self.prefix}:usage:gpu:users"

    def gpu_divisions(self) -> str:
        """How often GPU time was divided: of two managers one divides. Manager writes and reads. For ever."""
        return f"{self.prefix}:usage:gpu:divisions"

    def gpu_taken_back(self) -> str:
        """How often GPU time was taken back: days that are over count anew then. Gateways write, manager reads. For ever."""
        return f"{self.prefix}:usage:gpu:taken_back"

    def budgets(self) -> str:
        """Hash of budgets that admins set, by tenant. Gateways write, manager and gateways read. Until removed."""
        return f"{self.prefix}:budgets"

    def budget_standings(self) -> str:
        """Hash of what tenants spent of their budgets this month, and what was told of it. Manager writes, gateways read. Always."""
        return f"{self.prefix}:budget:standings"

    def conversations(self, owner: str) -> str:
        """Hash of a person's or tenant's conversations by id; what was said is in the object store. Gateways. Until removed."""
        return f"{self.prefix}:conversations:{owner}"

    # The service

    def genesis(self) -> str:
        """Random id of this data, made with it. Gateways write once and read. For ever: when it is gone, so is the rest."""
        return f"{self.prefix}:genesis"

    def restored(self) -> str:
        """Random id of the last `turnout restore`: gateways and managers that see another one begin anew. `turnout restore` writes. For ever."""
        return f"{self.prefix}:restored"

    def canary(self) -> str:
        """Written to see whether writes are taken. Gateways. 1 minute."""
        return f"{self.prefix}:canary"

    def manager_loops(self) -> str:
        """Hash of the states of the manager's background loops by name. The manager at work writes, gateways read for /ready. 10 s."""
        return f"{self.prefix}:loops:manager"

    # The fleet

    def mutex(self, name: str) -> str:
        """Name of the process that holds the right (`manager`, `fleet`). Managers write, gateways read. 6 or 10 s."""
        return f"{self.prefix}:mutex:{name}"

    def models(self) -> str:
        """Hash of registered models by name. Gateway and manager write, both read. Until removed."""
        return f"{self.prefix}:fleet:models"

    def pulls(self) -> str:
        """Hash of models that are, or were, pulled from a hub, by id, 50 at most. Gateways write and read. Until forgotten."""
        return f"{self.prefix}:pulls"

    def declared(self) -> str:
        """Set of models that the configuration declared, and an empty name. Manager writes and reads. Until removed."""
        return f"{self.prefix}:fleet:declared"

    def workers(self) -> str:
        """Set of worker ids. Gateway writes, gateway and manager read. An id goes when its worker lapsed."""
        return f"{self.prefix}:fleet:workers"

    def worker(self, worker: str) -> str:
        """Hash: doc (the registration), draining. Gateway writes, gateway and manager read. 7 days after a heartbeat."""
        return f"{self.prefix}:fleet:worker:{worker}"

    def heartbeat(self, worker: str) -> str:
        """Hash: seq, doc. Gateway writes, gateway and manager read. 1 hour."""
        return f"{self.prefix}:fleet:beat:{worker}"

    def orders(self, worker: str) -> str:
        """Hash: v, doc. Manager writes, gateways read for the worker. 7 days after a heartbeat."""
        return f"{self.prefix}:fleet:orders:{worker}"

    def order_versions(self) -> str:
        """Hash of the versions of orders by worker. Manager writes and reads. While the manager knows the worker."""
        return f"{self.prefix}:fleet:versions"

    def routes(self) -> str:
        """Hash of routes by model. Manager writes, gateways read. As long as the model."""
        return f"{self.prefix}:fleet:routes"

    def replicas(self) -> str:
        """Hash of replicas by id. Manager writes and reads. As long as the replica."""
        return f"{self.prefix}:fleet:replicas"

    def manager(self) -> str:
        """Hash: notes (the models' history), statuses, census (replica counts), notices (what operators were told). Manager writes, manager and gateways read. For ever."""
        return f"{self.prefix}:fleet:manager"

    def decision_counts(self) -> str:
        """Hash of counts of what the manager decided, by decision:model. Manager writes, gateways read for metrics. For ever."""
        return f"{self.prefix}:fleet:deeds"

    def gpu_reports(self) -> str:
        """Hash of the reports of GPU time that were booked last, by worker. Manager writes and reads. As the worker."""
        return f"{self.prefix}:fleet:gpu"

    def gateways(self) -> str:
        """Set of gateways. Gateways write, gateways and manager read. A name goes when its demand lapsed."""
        return f"{self.prefix}:fleet:gateways"

    def demand(self, gateway: str) -> str:
        """Hash: n, doc. The gateway writes, manager reads. 6 s."""
        return f"{self.prefix}:fleet:demand:{gateway}"

    def wishes(self) -> str:
        """Sorted set of wake:model and stop:model, by when an admin said it. Gateways write, manager reads. 30 s."""
        return f"{self.prefix}:fleet:wishes"

    def news(self) -> str:
        """Stream of what changed, about 10,000: w (worker), g (gateway), m (model), q (queue). Wakes the manager. For ever."""
        return f"{self.prefix}:fleet:news"

    def changes(self) -> str:
        """Stream of what the manager changed, about 10,000: w (orders), m (routes). Wakes gateways. For ever."""
        return f"{self.prefix}:fleet:changes"
