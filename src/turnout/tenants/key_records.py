"""How a key is written."""

from turnout.store.record_kinds import RecordKind
from turnout.tenants.key_rules import Key

KEY = RecordKind[Key]("key", Key)
