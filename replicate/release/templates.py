"""``release.toml`` and ``release-policy.toml`` to be filled in: every key, with a word on each.

What has to be said by people is ``""``: the loaders name each of those that is left empty.  What a
release may do without is commented out.
"""

from pathlib import Path

from replicate.errors import UsageError
from replicate.generation.disk import make_directory, write_new

RELEASE = "release.toml"
POLICY = "release-policy.toml"


def write_templates(folder: Path) -> None:
    """Write both templates into ``folder``, which is made where it is missing.

    Raises UsageError where one of them is there already (then neither is written), and LocalDisk.
    """
    contents = {RELEASE: RELEASE_TEMPLATE, POLICY: POLICY_TEMPLATE}
    for name in contents:
        if (folder / name).exists() or (folder / name).is_symlink():
            raise UsageError(f"{folder / name} exists, and nothing is overwritten", hint="name another folder")
    make_directory(folder)
    for name, text in contents.items():
        write_new(folder / name, text.encode())


RELEASE_TEMPLATE = """\
# What is released, and where to. Paths are relative to this file; patterns are shell patterns over names.
# Fill in what is "", and take out what is not needed: `ckptier release prepare` names what is missing.
# docs/release.md says more about each table.
format = 1
kind = "full"                  # full: a model of transformers; adapter: one of peft; custom: your own code
name = ""                      # letters, digits, . _ -
version = "1.0"                # of this release
code_version = ""              # of the code that trained it, such as "git:4f1c2d7"

[license]
id = ""                        # as the Hub writes it: "apache-2.0", "mit" …; "other" needs name and link
# name = "its name"
# link = "LICENSE"             # or an https address

[source]
files = ["payload.pt"]         # in the generation; this is what replicate.integrations.torch writes
entries = "model"              # dotted path to the state dict in it; "" where the file is the state dict

[weights]
max_shard_size = "5GB"
# omit = ["*.attn.bias"]       # left out, and said so in the provenance

# One tensor under several names, as the model class ties them: `prepare` says what to write here.
# [[weights.tied]]
# keep = "transformer.wte.weight"
# drop = ["lm_head.weight"]

# [[weights.rename]]           # the start of a name; wrapper parts such as module. go by themselves
# prefix = "backbone."
# to = "model."

# [weights.cast]               # floating tensors only
# dtype = "bfloat16"           # or float16, float32
# allow = ["*"]
# keep = ["*norm*"]

[architecture]
model_class = ""               # of transformers, such as "GPT2LMHeadModel"
# factory = "decoder:build"    # kind = "custom": module:function, instead of model_class
# code = "code"                # its folder; it is not published

# [adapter]                    # kind = "adapter"
# base_model = "owner/name"
# base_revision = "0123456789abcdef0123456789abcdef01234567"  # the commit
# base_license = "apache-2.0"
# base_path = "base"           # a local copy, for verification only

[files]                        # each is published under its own base name
config = "config.json"         # of the model; for an adapter: adapter_config instead
# adapter_config = "adapter_config.json"
# generation_config = "generation_config.json"
# tokenizer = ["tokenizer.json", "tokenizer_config.json"]
# chat_template = "chat_template.jinja"
license = "LICENSE"            # the text
# other = ["NOTICE"]

[card]                         # becomes README.md; prose is Markdown of 20 characters or more
title = ""
summary = ""
intended_use = ""
limitations = ""
training = ""                  # data, procedure
compute = ""                   # machines, time
library_name = "transformers"  # peft for an adapter
# pipeline_tag = "text-generation"
# language = ["en"]
# tags = []
# datasets = ["owner/corpus"]
# base_model = ["owner/name"]
# base_model_relation = "finetune"

# [[card.evaluation]]
# task = "text-generation"
# dataset = "owner/held-out"
# revision = "main"            # of the dataset
# split = "test"
# metric = "perplexity"
# value = "31.7"               # in quotes
# protocol = "how it was measured, so that others can repeat it"

# [card.emissions]
# grams = "1200"               # of CO2 equivalents, in quotes
# source = "estimated from the power draw"
# training_type = "pre-training"
# geographical_location = "EU"
# hardware_used = "8 GPUs"

[destination]
url = ""                       # hf://owner/name, file:///folder (not there yet), s3://bucket/prefix …
visibility = "private"         # the Hub: private at first, made public later; elsewhere: unmanaged
# tag = "v1.0"                 # the Hub's
# revision = "main"            # the Hub's branch
# gating = "none"              # the Hub's: none, auto, manual
# endpoint = "https://…"       # for a Hub or an S3 store at another address
"""

POLICY_TEMPLATE = """\
# Who may ask for, approve, publish and revoke releases, and to where. Keep it where releases are reviewed:
# it is the root of trust, and a change of it ends every authorization that was made before.
# Each person makes a key (`ckptier release keygen NAME.pem`), keeps the file, and gives what it prints.
format = 1
threshold = 2                  # approvals that a release needs; the requester's does not count
# requester_may_approve = true # with threshold = 1: one person alone, and every record says so
# max_valid_days = 14          # how long an authorization may hold, at most 90
log = ""                       # the release log: a folder (file:///srv/release-log) or bucket that is there
# log_endpoint = "https://…"   # for an S3 store that is not AWS

[[person]]
name = "requester"
key = ""                       # "ed25519:…"
may = ["request"]

[[person]]
name = "approver-a"
key = ""
may = ["approve", "revoke"]    # revoke: take an authorization back, withdraw a release

[[person]]
name = "approver-b"
key = ""
may = ["approve"]
# not_after = 2030-01-01T00:00:00Z  # for somebody who leaves; the entry stays, what they signed still counts

[[person]]
name = "publisher"
key = ""
may = ["publish"]

[[destination]]
url = ""                       # as in release.toml; * stands for one part: "hf://owner/*"
# endpoint = "https://…"       # as in release.toml, letter for letter
visibility = ["private", "public"]  # elsewhere than on the Hub: ["unmanaged"]
"""
