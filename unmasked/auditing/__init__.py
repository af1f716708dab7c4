"""The audit of explanations: do they inform, and do they give the answer away?"""

from unmasked.auditing.api import audit
from unmasked.auditing.result import AuditResult
from unmasked.auditing.settings import AuditSettings

__all__ = ["AuditResult", "AuditSettings", "audit"]
