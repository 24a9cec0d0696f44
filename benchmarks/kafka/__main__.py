"""`python -m benchmarks.kafka`: topics of Kafka read and written by Spark, with our source and sink and with Spark's connector."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.kafka.latency import latency
from benchmarks.kafka.scans import scan_avro, scan_frames, scan_json
from benchmarks.kafka.sinks import sink_frames, sink_json
from benchmarks.kafka.windows import tumbling

PARTS = {
    "scan.frames": scan_frames,
    "scan.json": scan_json,
    "scan.avro": scan_avro,
    "sink.frames": sink_frames,
    "sink.json": sink_json,
    "tumbling": tumbling,
    "latency": latency,
}

if __name__ == "__main__":
    main("kafka", PARTS)
