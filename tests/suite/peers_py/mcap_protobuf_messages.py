"""Decodes every protobuf message of an MCAP file with PyPI mcap-protobuf-support.

Prints how many messages the protobuf runtime encodes to the same bytes, and how many to others.
"""

import sys

from mcap.reader import make_reader
from mcap_protobuf.decoder import DecoderFactory

with open(sys.argv[1], "rb") as file:
    reader = make_reader(file, decoder_factories=[DecoderFactory()])
    channels = reader.get_summary().channels.values()
    topics = [channel.topic for channel in channels if channel.message_encoding == "protobuf"]
    same = other = 0
    for schema, channel, message, decoded in reader.iter_decoded_messages(topics=topics):
        assert decoded.DESCRIPTOR.full_name == schema.name
        if decoded.SerializeToString(deterministic=True) == message.data:
            same += 1
        else:
            other += 1
    print(same, other)
