"""PUMIT Segment: logic, scene handling and panel."""
