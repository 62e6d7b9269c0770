"""What LMCache's controller answers: its own registry, full sync and look-ups, driven by its own messages.

    PYTHONHASHSEED=0 PYTHONPATH=<unpacked lmcache wheel> python generate_lookup.py --lmcache 0.5.6 --seed 20 --out OUT

Real: the message classes, their decoding, the manager's dispatch, both controllers, the token database.
Stood in for: torch, transformers, numba (nothing of them runs), vLLM's sha256_cbor and NONE_HASH (two lines each; the files
in hash/ hold what the real ones give). Needs msgspec, pyzmq, cbor2 and what LMCache imports.
"""
import argparse, asyncio, base64, hashlib, importlib.abc, importlib.machinery, json, logging, os, random, sys, types

import cbor2, msgspec


class Nothing(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: False


class Stub(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__") or name in ("musa", "xpu", "hpu", "npu"):
            raise AttributeError(name)
        if name == "njit":
            return lambda *args, **kwargs: args[0] if args else lambda fn: fn
        setattr(self, name, Nothing(name, (), {}))
        return getattr(self, name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("torch", "transformers", "cupy", "numba"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


def sha256_cbor(value):
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def stand_in_vllm(seed):
    """vllm.utils.hashing and vllm.v1.core.kv_cache_utils, as far as the token database asks them."""
    for name in ("vllm", "vllm.utils", "vllm.utils.hashing", "vllm.v1", "vllm.v1.core", "vllm.v1.core.kv_cache_utils"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    hashing, cache = sys.modules["vllm.utils.hashing"], sys.modules["vllm.v1.core.kv_cache_utils"]

    def by_name(name):
        if name == "builtin":
            return hash
        if name == "sha256_cbor":
            return sha256_cbor
        raise ValueError(name)

    hashing.get_hash_fn_by_name = by_name
    hashing.sha256_cbor = hashing.sha256 = sha256_cbor
    cache.init_none_hash = lambda fn: setattr(cache, "NONE_HASH", fn(seed))
    sys.modules["vllm.v1.core"].kv_cache_utils = cache


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lmcache", required=True)
    p.add_argument("--seed", default="20")
    p.add_argument("--algorithm", default="sha256_cbor", choices=("sha256_cbor", "builtin"))
    p.add_argument("--chunk", type=int, default=16)
    p.add_argument("--steps", type=int, default=260)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    hashseed = os.environ["PYTHONHASHSEED"]
    sys.meta_path.insert(0, Finder())
    stand_in_vllm(hashseed)
    logging.disable(logging.CRITICAL)
    import lmcache.v1.cache_controller.message as m
    import lmcache.v1.token_database as td
    from lmcache.v1.cache_controller.controllers import KVController, RegistrationController
    from lmcache.v1.cache_controller.controller_manager import LMCacheControllerManager as Manager
    old = not hasattr(m, "BatchedKVOperationMsg")  # to 0.3.9 there are no batches and no full sync
    rng = random.Random(f"lookup/{a.seed}")

    reg = RegistrationController()
    kv = KVController() if old else KVController(registry=reg.registry)
    # What the controller makes itself has "builtin" and 256, fixed in its source.
    config = types.SimpleNamespace(pre_caching_hash_algorithm=a.algorithm, chunk_size=a.chunk, save_unfull_chunk=True,
                                   remote_url=None, enable_pd=False)
    db = kv.token_database = td.ChunkedTokenDatabase(config, None)
    kv.post_init(reg_controller=reg, cluster_executor=None)
    reg.post_init(kv_controller=kv, cluster_executor=None)
    if not old:
        # The list of workers that progress is reported of is cached for a while; a replay has no clock.
        fresh = reg.registry.get_all_worker_nodes_cached
        reg.registry.get_all_worker_nodes_cached = lambda timeout_seconds=None: fresh(0)
    manager = types.SimpleNamespace(reg_controller=reg, kv_controller=kv, controller_urls={})
    for name in ("handle_worker_message", "handle_worker_req_message", "handle_orchestration_message"):
        setattr(manager, name, types.MethodType(getattr(Manager, name), manager))
    os.makedirs(a.out, exist_ok=True)
    path = os.path.join(a.out, f"lookup-{a.lmcache}-{a.algorithm}.jsonl")
    out = open(path, "w")

    lines = 0

    def emit(**line):
        nonlocal lines
        out.write(json.dumps(dict(n=lines, **line), separators=(",", ":")) + "\n")
        lines += 1

    def text(h):
        return "0x" + h.hex() if isinstance(h, bytes) else str(h)

    emit(header=True, engine="lmcache", lmcache=a.lmcache, what="lookup", python_hash_seed=hashseed, algorithm=a.algorithm,
         chunk_size=a.chunk, save_unfull_chunk=True, none_hash=text(td.NONE_HASH))

    async def send(msg):
        """As the manager's loops do: decode, dispatch, encode the reply."""
        raw = msgspec.msgpack.encode(msg)
        msg = msgspec.msgpack.decode(raw, type=m.Msg)
        reply = None
        if isinstance(msg, m.WorkerMsg):
            await manager.handle_worker_message(msg)
        elif isinstance(msg, m.WorkerReqMsg):
            reply = await manager.handle_worker_req_message(msg)
        else:
            reply = await manager.handle_orchestration_message(msg)
        line = dict(op="message", type=type(msg).__name__, payload_b64=base64.b64encode(raw).decode())
        if reply is not None:
            line["reply_b64"] = base64.b64encode(msgspec.msgpack.encode(reply)).decode()
        emit(**line)

    prompts = []
    for _ in range(14):
        base = rng.choice(prompts)[:a.chunk * rng.randrange(0, 6)] if prompts and rng.random() < 0.7 else []
        prompts.append(base + [rng.randrange(150_000) for _ in range(rng.randrange(1, 6 * a.chunk))])

    def keys(tokens):
        return [k for _, _, k in db.process_tokens(list(tokens), make_key=False)]

    class W:
        def __init__(self, instance, worker):
            self.instance, self.worker, self.seq, self.held, self.on, self.sync = instance, worker, {}, {}, False, 0

        def who(self):
            return dict(instance_id=self.instance, worker_id=self.worker)

        def address(self):
            url = None if self.worker % 2 else f"10.0.0.{self.worker}:{self.worker + 9000}"
            name = "distributed_url" if old else "peer_init_url"
            return dict(ip=f"10.0.{len(self.instance)}.{self.worker}", port=8000 + self.worker, **{name: url or ("" if old else None)})

    workers = [W(i, w) for i in ("pod-a", "pod-bb", "pod-ccc", "pod-dddd") for w in range(2)]
    rng.shuffle(workers)
    locations = ("LocalCPUBackend", "LocalDiskBackend", "RemoteBackend")

    async def operate(w):
        location = rng.choice(locations)
        held = w.held.setdefault(location, set())
        ops = [("admit", k) for k in keys(rng.choice(prompts))[:rng.randrange(1, 9)]]
        if held and rng.random() < 0.5:
            ops += [("evict", k) for k in rng.sample(sorted(held), min(len(held), rng.randrange(1, 6)))]
        if rng.random() < 0.1:
            ops.append(("evict", rng.getrandbits(60)))
        events = []
        for op, k in ops:
            (held.add if op == "admit" else held.discard)(k)
            w.seq[location] = w.seq.get(location, -1) + (2 if rng.random() < 0.04 else 1)
            events.append((op, k, w.seq[location]))
        if old:
            for op, k, _ in events:
                await send((m.KVAdmitMsg if op == "admit" else m.KVEvictMsg)(**w.who(), key=k, location=location))
            return
        await send(m.BatchedKVOperationMsg(**w.who(), location=location,
                                           operations=[m.KVOpEvent(op_type=m.OpType(op), key=k, seq_num=s) for op, k, s in events]))

    async def full_sync(w):
        location = rng.choice(locations)
        w.sync += 1
        who, sync = w.who(), f"sync-{w.instance}-{w.worker}-{w.sync}"
        batches = [keys(rng.choice(prompts))[:rng.randrange(1, 8)] for _ in range(rng.randrange(1, 4))]
        total = sum(map(len, batches))
        await send(m.FullSyncStartMsg(**who, location=location, sync_id=sync, total_keys=total, batch_count=len(batches)))
        if rng.random() < 0.2:
            await send(m.FullSyncStartMsg(**who, location=location, sync_id="another", total_keys=0, batch_count=0))
        w.held[location] = {k for b in batches for k in b}
        lost = rng.randrange(len(batches)) if rng.random() < 0.3 else -1
        for i, b in enumerate(batches):
            if rng.random() < 0.3:
                await operate(w)  # thrown away while it syncs
            if i != lost:
                await send(m.FullSyncBatchMsg(**who, location=location, sync_id=sync if rng.random() < 0.95 else "wrong", batch_id=i, keys=b))
        await send(m.FullSyncStatusMsg(**who, sync_id=sync))
        if rng.random() < 0.85:
            await send(m.FullSyncEndMsg(**who, location=location, sync_id=sync, actual_total_keys=total))
            await send(m.FullSyncStatusMsg(**who, sync_id=sync))

    async def run():
        for step in range(a.steps):
            w, dice = rng.choice(workers), rng.random()
            if not w.on and (step < 6 or dice < 0.4):
                await send(m.RegisterMsg(**w.who(), **w.address()))
                w.on = True
            elif dice < 0.55:
                await operate(w)
            elif dice < 0.60:
                await send(m.HeartbeatMsg(**w.who(), **w.address()))
                w.on = True
            elif dice < 0.63 and w.on and not old:  # to 0.3.9 a deregistered worker's chunks stay, see the README
                await send(m.DeRegisterMsg(**w.who(), ip=w.address()["ip"], port=w.address()["port"]))
                w.on, w.held, w.seq = False, {}, {}
            elif dice < 0.65 and not old:
                await send(m.RegisterMsg(**w.who(), **w.address()))
                w.on, w.held = True, {}
            elif dice < 0.72 and not old:
                await full_sync(w)
            elif dice < 0.76:
                await send(m.BatchedP2PLookupMsg(hashes=keys(rng.choice(prompts)), **w.who()))
            elif dice < 0.78:
                await send(m.QueryInstMsg(event_id=f"e{step}", ip=w.address()["ip"]))
            else:
                tokens = rng.choice(prompts)
                tokens = tokens + [rng.randrange(150_000) for _ in range(rng.randrange(0, 20))] if rng.random() < 0.3 else tokens
                msg = m.LookupMsg(event_id=f"e{step}", tokens=tokens)
                reply = await manager.handle_orchestration_message(msgspec.msgpack.decode(msgspec.msgpack.encode(msg), type=m.Msg))
                emit(op="lookup", tokens=tokens, keys=[text(k) for k in keys(tokens)],
                     layout_info=[[k, *v] for k, v in reply.layout_info.items()])
        emit(op="state", seq_discontinuities=0 if old else reg.registry.get_seq_discontinuity_count(),
             keys=sum(len({(c.instance_id, c.worker_id, c.location) for c in v}) for v in kv.kv_pool.values()) if old
             else reg.registry.get_total_kv_count())

    asyncio.run(run())
    out.close()
    print("wrote", path, sum(1 for _ in open(path)))
    os._exit(0)  # sockets to workers that are not there


main()
