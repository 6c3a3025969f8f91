"""The experiment that ``fedtailor new`` writes: the most common settings, and others as comments."""

STARTER = """\
# An experiment. Start it with:   fedtailor run {name}
# Compare methods with:           fedtailor compare {name}
# Lines that begin with "#" show other settings; a setting that is left out has its default.

seed = 0            # seed of every random stream: the same seed gives the same result, bit for bit
rounds = 20         # number of rounds
# track = ["tensorboard", "mlflow", "wandb"]  # trackers that get a copy of the run (docs/trackers.md)

[data]
source = "digits"   # 'fedtailor data list' shows them all
clients = 20
# dir = "data"      # folder with the files of the data sets
# source = "folder" # your own data (docs/data.md); if they come divided, remove clients and [data.partition]
# folder = "my-data"  # with a file (.csv, .npz) or sub folder for each client
# label = "died"    # the column of CSV files to predict; default: the last

[data.partition]    # without it, your own clients stay as they are: kind = "given"
kind = "dirichlet"  # or "iid", "pathological", "one-label", "mixed", "resampled", "by-writer", "by-domain", "given"
alpha = 0.1         # smaller: the clients differ more

# [data.split]      # shares of every client's samples
# train = 0.75
# val = 0.0
# test = 0.25

[model]
name = "auto"       # 'fedtailor models' shows them all; "module:Class" is your own network
# head = "last"     # what personalised methods keep on the client: "last", "linear", or layer names

[training]
epochs = 5          # passes over a client's data in a round
batch_size = 10
lr = 0.05
# momentum = 0.0
# optimiser = "sgd" # or "adam"
# together = "auto" # small networks of linear layers: train several clients at once where it is faster
# precision = "fp32"  # or "bf16": faster on processors that have it; "auto": bf16 on those

[method]
name = "fedper"     # 'fedtailor methods' shows them all, 'fedtailor methods NAME' their settings

[participation]
ratio = 1.0         # share of the clients in a round
# dropout = 0.1     # probability that a chosen client does not answer

# [devices]         # a virtual clock; 'fedtailor devices {name}' shows every client's device
# profiles = {{ kind = "uniform", spread = 10 }}  # or "tiers", "log-normal", "csv"
# speed = 10.0      # billion multiply-adds a second of the fastest device
# deadline = 60     # seconds; a late client is left out of the round

# [evaluation]
# every = 1         # rounds between two evaluations

# [engine]
# kind = "processes"  # one worker per core; "inline": in this process; "ray": on a Ray cluster
# workers = 2

[compare]
methods = ["local", "fedavg", "fedper", {{name = "fedprox", mu = 0.01}}]
seeds = [0, 1, 2]   # three or more, so that differences can be decided
model = "final"     # the model of the headline: final, held, received or global
"""


def starter(name: str) -> str:
    """The text of a new experiment for a file of this name."""
    return STARTER.format(name=name)
