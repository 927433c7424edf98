"""The entry point by which lmms-eval finds the model: `lmms_eval --model rotatek`."""

from lmms_eval.models.registry_v2 import ModelManifest


def manifest() -> ModelManifest:
    """Called by lmms-eval; the model class itself is imported only when it is chosen."""
    return ModelManifest(
        model_id="rotatek", simple_class_path="rotatek.evaluation.lmms_model.RotateK"
    )
