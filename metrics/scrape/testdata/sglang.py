"""Writes the page that SGLang's own metric collectors give, merged from files as its server does.

usage: sglang.py SGLANG_ROOT OUT
"""
import os, sys, tempfile
from types import SimpleNamespace

os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp()
sys.path.insert(0, sys.argv[1])
from sglang.srt.observability import metrics_collector as mc
from prometheus_client import CollectorRegistry, generate_latest, multiprocess

bag = SimpleNamespace(prefill_delayer_max_delay_passes=30, prefill_delayer_forward_passes_buckets=None,
                      prefill_delayer_wait_seconds_buckets=None, prompt_tokens_buckets=None, generation_tokens_buckets=None,
                      stat_loggers=None)
mc.get_schedule = mc.get_observability = lambda: bag
mc.exports_expert_balancedness_to_prometheus = lambda *a: False
args = SimpleNamespace(prefill_delayer_max_delay_passes=30)
name = {"model_name": "tiny", "engine_type": "unified"}

for rank in range(2):  # two data-parallel ranks
    c = mc.SchedulerMetricsCollector(labels={**name, "tp_rank": rank, "pp_rank": 0, "moe_ep_rank": 0, "priority": "", "dp_rank": rank},
                                     server_args=args) if rank == 0 else c
    c.labels = {**c.labels, "tp_rank": rank, "dp_rank": rank}
    s = mc.SchedulerStats()
    s.num_running_reqs = mc.QueueCount(total=7 + rank, by_priority={0: 4, 1: 3 + rank})
    s.num_queue_reqs = mc.QueueCount(total=3, by_priority={0: 1, 1: 2})
    s.token_usage, s.full_token_usage, s.cache_hit_rate, s.gen_throughput = .25 + rank / 8, .25, .5, 1234.5
    c.log_stats(s)
    for i in range(20):
        c.observe_queue_time(.01 * i)
        c.observe_per_stage_req_latency("prefill_forward", .02 * i)
    c.increment_retracted_reqs(num_retracted_reqs=rank + 1, num_retracted_input_tokens=100, num_retracted_output_tokens=10)
t = mc.TokenizerMetricsCollector(labels={**name, "priority": ""}, server_args=args)
for i in range(50):
    t.observe_one_finished_request(labels={**name, "priority": str(i % 2)}, prompt_tokens=1000 * i, generation_tokens=10 * i,
                                   cached_tokens=500 * i, e2e_latency=.1 * i, has_grammar=False,
                                   cached_tokens_details={"device": 400 * i, "host": 100 * i})
    t.observe_time_to_first_token({**name, "priority": str(i % 2)}, .01 * i, stream=False)
    t.observe_inter_token_latency({**name, "priority": str(i % 2)}, .01 * i, 1)
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
with open(sys.argv[2], "wb") as f:
    f.write(generate_latest(registry))
