"""The published protocol of ITK-SNAP's deep-learning server, which its clicks are sent by."""
