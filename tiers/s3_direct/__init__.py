"""The short way of bodies to and from an S3 store.

The SDK keeps credentials, endpoints, profiles, its connections and all small requests.
PutObject, UploadPart and GetObject are sent here: signed with the digest that sealing
recorded, from one reused buffer a thread, and received into the caller's own.

    client      what the tier sees: these three operations, and the SDK's client for all else
    rehearsal   what the SDK would send: host, path, region and standing headers, learnt from it
    requests    from the operation's fields to the head of a request
    signing     Signature Version 4
    wire        one request and its answer, on a connection of the SDK's pool
    heads       the head of an answer, read strictly
    answers     from a head and a document to what the SDK would return or raise

Whatever is not known here goes by the SDK, which is also what all of it is checked against.
"""

from tiers.s3_direct.client import DirectClient, direct

__all__ = ["DirectClient", "direct"]
