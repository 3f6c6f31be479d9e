"""The load format "dsaio" of vLLM: `vllm serve MODEL --load-format dsaio`.

It is vLLM's own loader of safetensors files, whose files are opened by dsaio.safetensors: all ranks of a host read them
once.  vLLM finds it by itself where the wheel is installed, as an entry point of the group vllm.general_plugins.
"""

from __future__ import annotations

import copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator


def register() -> None:
    """Makes the load format known to vLLM, in this process."""
    from vllm.model_executor import model_loader
    from vllm.model_executor.model_loader import weight_utils

    class DsaioModelLoader(model_loader.DefaultModelLoader):  # type: ignore[misc]
        """Loads the files that the format "safetensors" loads."""

        def __init__(self, load_config: Any) -> None:
            strategy = getattr(load_config, "safetensors_load_strategy", None)
            extra: Any = load_config.model_loader_extra_config
            if strategy not in (None, "lazy") or (extra and extra.get("enable_multithread_load")):
                raise ValueError(
                    "dsaio: load format dsaio: leave out safetensors_load_strategy and enable_multithread_load,"
                    " with which vLLM reads files itself"
                )
            load_config = copy.copy(load_config)
            load_config.load_format = "safetensors"
            super().__init__(load_config)

        def _get_weights_iterator(self, source: Any) -> Iterator[Any]:
            from . import safetensors

            # vLLM's iterator over the tensors of files takes it from there.
            before = weight_utils.safe_open
            weight_utils.safe_open = safetensors.safe_open
            try:
                yield from super()._get_weights_iterator(source)
            finally:
                weight_utils.safe_open = before

    model_loader.register_model_loader("dsaio")(DsaioModelLoader)
