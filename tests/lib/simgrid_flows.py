"""Runs flows in SimGrid: a JSON document comes in, the end of every flow goes out.

Run by the Python to which SimGrid belongs: ``/usr/bin/python3 tests/lib/simgrid_flows.py < flows.json`` after
``apt-get install python3-simgrid``. Model CM02 without what it corrects for TCP: factors 1, no window (TCP-gamma 0), no
cross-traffic. CM02 shares links by round-trip time as TCP does, which max-min fairness does not: where flows differ in
latency, links have none and a flow waits for its latency before it moves (``has_latency`` is false).
"""

import json
import sys
import tempfile

from simgrid import Actor, Engine, Mailbox, simgrid_version, this_actor

CONFIGURATION = [
    "network/model:CM02",
    "network/latency-factor:1",
    "network/bandwidth-factor:1",
    "network/weight-S:0",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "network/loopback-bw:1e12",
]


def platform(flows, links, has_latency):
    """Returns the description of a platform whose hosts are the ends of flows, each pair with its route."""
    lines = ["<?xml version='1.0'?>", '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">']
    lines += ['<platform version="4.1">', '<zone id="all" routing="Full">']
    hosts = sorted({end for flow in flows for end in (flow["source"], flow["target"])})
    lines += [f'<host id="{host}" speed="1Gf"/>' for host in hosts]
    for name, (rate, latency) in links.items():
        seconds = latency if has_latency else 0
        lines.append(f'<link id="{name}" bandwidth="{rate!r}Bps" latency="{seconds!r}s" sharing_policy="SHARED"/>')
    for (source, target), route in {(flow["source"], flow["target"]): flow["route"] for flow in flows}.items():
        over = "".join(f'<link_ctn id="{link}"/>' for link in route)
        lines.append(f'<route src="{source}" dst="{target}" symmetrical="NO">{over}</route>')
    return "\n".join([*lines, "</zone>", "</platform>"])


def main():
    """Reads links (bytes per second, seconds) and queues of flows; prints when each flow ended, in seconds."""
    given = json.load(sys.stdin)
    links, queues, has_latency = given["links"], given["queues"], given["has_latency"]
    engine = Engine(["flows", *(f"--cfg={setting}" for setting in CONFIGURATION), "--log=root.thres:error"])
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(platform([flow for queue in queues for flow in queue], links, has_latency))
        file.flush()
        engine.load_platform(file.name)
    ends = [[0.0] * len(queue) for queue in queues]

    def send(number):
        for nth, flow in enumerate(queues[number]):
            late = flow["start"] - Engine.clock
            latency = 0 if has_latency else sum(links[link][1] for link in flow["route"])
            this_actor.sleep_for(max(late, 0) + latency)
            Mailbox.by_name(f"{number}.{nth}").put("", flow["nbytes"])
            ends[number][nth] = Engine.clock

    def receive(number, nth):
        Mailbox.by_name(f"{number}.{nth}").get()

    for number, queue in enumerate(queues):
        Actor.create(f"send {number}", engine.host_by_name(queue[0]["source"]), send, number)
        for nth, flow in enumerate(queue):
            Actor.create(f"receive {number}.{nth}", engine.host_by_name(flow["target"]), receive, number, nth)
    engine.run()
    json.dump({"version": simgrid_version, "ends": ends}, sys.stdout)


main()
