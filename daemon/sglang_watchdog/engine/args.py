"""Arguments as conditions see them: one name for one thing, whatever the release calls it."""

from collections.abc import Mapping

from ..model.observation import Json


def flattened(args: Mapping[str, Json]) -> dict[str, Json]:
    """The dump, with what moved into nested records also under its older name.

    From 0.5.14 the graph settings stand in `cuda_graph_config` (srt/server_args.py, CudaGraphConfig): decode and prefill each
    with backend, bs and max_bs; `disabled` as decode backend is what disable_cuda_graph was.
    """
    out = dict(args)
    graphs = args.get("cuda_graph_config")
    if isinstance(graphs, dict):
        decode, prefill = graphs.get("decode"), graphs.get("prefill")
        if isinstance(decode, dict):
            if decode.get("backend") is not None:
                out["disable_cuda_graph"] = decode["backend"] == "disabled"
            if isinstance(decode.get("max_bs"), int):
                out["cuda_graph_max_bs"] = decode["max_bs"]
        if isinstance(prefill, dict) and prefill.get("backend") is not None:
            out["disable_piecewise_cuda_graph"] = prefill["backend"] == "disabled"
    return out
