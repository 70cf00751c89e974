"""The Python SDK and signed cards: python cards.py BASE KEYS ALGORITHM.

Fetches the card below BASE with the SDK's resolver and verifies it with the SDK's
verifier and the JWK set of the file KEYS. Prints "verified KID JKU", or why not.
"""

import asyncio
import json
import sys

import httpx
from a2a.client.card_resolver import A2ACardResolver
from a2a.utils.signing import SignatureVerificationError, create_signature_verifier
from jwt.api_jwk import PyJWK
from jwt.exceptions import PyJWKError

BASE, KEYS, ALGORITHM = sys.argv[1:]


async def main():
    with open(KEYS, encoding="utf-8") as file:
        keys = {key["kid"]: PyJWK(key) for key in json.load(file)["keys"]}
    asked = []

    def key_of(kid, jku):
        asked.append(f"{kid} {jku}")
        if kid not in keys:
            raise PyJWKError(f"no key {kid}")
        return keys[kid]

    async with httpx.AsyncClient() as plain:
        try:
            card = await A2ACardResolver(plain, BASE).get_agent_card(
                signature_verifier=create_signature_verifier(key_of, [ALGORITHM])
            )
        except SignatureVerificationError as e:
            sys.exit(f"refused: {type(e).__name__}: {e}")
    assert card.name == "echo", card
    print(f"verified {asked[-1]}")


asyncio.run(main())
