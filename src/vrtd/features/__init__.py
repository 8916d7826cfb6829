"""Features: maps from observations to R^d."""

from vrtd.features.adapters import FromFunction, FromTransformer, as_features
from vrtd.features.completion import with_bounds, with_states
from vrtd.features.compose import Scaled, Stack
from vrtd.features.features import MOST_FEATURES, Features
from vrtd.features.fourier import Fourier
from vrtd.features.identity import Identity
from vrtd.features.polynomial import Polynomial
from vrtd.features.random_fourier import RandomFourier
from vrtd.features.rbf import RBF
from vrtd.features.specs import from_settings, parse
from vrtd.features.tabular import Table, Tabular
from vrtd.features.tiles import Tiles

__all__ = [
    "MOST_FEATURES",
    "RBF",
    "Features",
    "Fourier",
    "FromFunction",
    "FromTransformer",
    "Identity",
    "Polynomial",
    "RandomFourier",
    "Scaled",
    "Stack",
    "Table",
    "Tabular",
    "Tiles",
    "as_features",
    "from_settings",
    "parse",
    "with_bounds",
    "with_states",
]
