"""The endpoints of the nnInteractive protocol, on the same sessions as our own."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
