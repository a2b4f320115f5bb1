"""Recordings of whole tensors that the judgement was not developed against: other nets, and faults statistics miss."""
