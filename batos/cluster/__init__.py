"""Several kernels on one image: who is there, who is silent, and who leads."""

from batos.cluster.membership import Alone, Membership

__all__ = ["Alone", "Membership"]
