"""A table of mistakes over all commands and settings: each gets one sentence and exit code 2, and writes nothing."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedtailor

DEMO = str(Path(__file__).parents[2] / "recipes" / "demo")
FILES = {
    "twice.toml": "rounds = 1\nrounds = 2\n",
    "folderless.toml": '[data]\nsource = "folder"\n',
    "list.toml": "training = [1, 2]\n",
    "three.toml": 'roundz = 3\n[training]\nlr = "fast"\n[method]\nname = "fedprox"\nmu = -1\n',
    "unimportable.py": "raise ImportError('no such thing')\n",
    "unparsable.py": "class Broken(:\n",
    "otherwise.py": "class Thing: pass\n",
    "broken.npz": "not a zip",
    "table.csv": "age,sex\n30,m\n",
    "broken.pt": "not a zip",
    "junk/a.npz": "nothing",
    "recipe/reproduce.toml": "title = 3\n",
}

# --set of a run, and what the sentence says
SETTINGS = [
    # the engine
    ("engine.device=cuda:77", "cuda:77"),
    ("engine.device=banana", "engine.device = 'banana': should be 'cpu', 'auto'"),
    ("engine.device=cuda:x", "engine.device"),
    ("engine.kind=spark", "engine.kind = 'spark'"),
    ("engine.kind=flower", "fedtailor serve"),
    ("engine.workers=-1", "engine.workers"),
    ("engine.workers=2.5", "engine.workers"),
    ("engine.address=nonsense", "engine.address"),
    # words of other frameworks
    ("training.learning_rate=1", "did you mean training.lr?"),
    ("learning_rate=1", "did you mean training.lr?"),
    ("batch_size=3", "did you mean training.batch_size?"),
    ("num_clients=3", "did you mean data.clients?"),
    ("global_rounds=3", "did you mean rounds?"),
    ("local_epochs=3", "did you mean training.epochs?"),
    ('method={name="bwa",policy="builtin"}', "policy = 'builtin': there is no such folder: did you mean 'built-in'?"),
    ("method=FedAvgFT", "did you mean 'fedavg-ft'?"),
    ("method=pFedRLLA", "did you mean 'pfedrlla'?"),
    ("optimizer=adam", "did you mean training.optimiser?"),
    ("dataset=mnist", "did you mean data.source?"),
    ("gpu=1", "did you mean engine.device?"),
    # the run
    ("rounds=0", "rounds = 0"),
    ("rounds=99999999", "rounds = 99999999"),
    ("rounds.x=1", "rounds"),
    ("seed=-1", "seed = -1"),
    ("seed=1.5", "seed = 1.5"),
    ("name=", "name = ''"),
    ("name=.hidden", "name = '.hidden'"),
    ("a.b.c=1", "unknown setting 'a'"),
    ("=3", "key=value"),
    ("rounds", "key=value"),
    ("training..lr=1", "key=value"),
    # training
    ("training=3", "training = 3: should be a table"),
    ("training.lr=nan", "training.lr"),
    ("training.lr=inf", "training.lr"),
    ("training.lr='0.1x'", "training.lr = '0.1x'"),
    ("training.epochs=-1", "training.epochs"),
    ("training.momentum=1", "training.momentum"),
    ("training.optimiser=sgdd", "training.optimiser"),
    ("training.schedule.kind=cosin", "did you mean 'cosine'"),
    ("training.loss=hinge", "training.loss"),
    ("training.loss=huber", "training.loss = 'huber' is for numbers"),
    ("training.loss=otherwise:nope", "training.loss = 'otherwise:nope'"),
    ("training.precision=fp16", "training.precision"),
    ("training.batch_size=0", "training.batch_size"),
    ("training.clip=-1", "training.clip"),
    # data
    ("data.clients=0", "data.clients"),
    ("data.source=minst", "did you mean 'mnist'"),
    ("data.partition=dirichlt", "did you mean 'dirichlet'"),
    ("data.partition.alpha=0", "alpha"),
    ("data.split={train=0.9,test=0.9}", "data.split"),
    ("data.split=oficial", "data.split"),
    ("data.samples=0", "data.samples"),
    ("data.samples=5", "5"),
    ("data.seed=-1", "data.seed"),
    ("data.val=2", "data.val"),
    ("data.val=0.2", "data.split.val"),
    ("data.source=folder", "data.folder"),
    ("data.folder=junk", 'only data.source = "folder" reads your own files'),
    ("data.label=sex", 'only data.source = "folder" reads your own files'),
    ("data.categorical=['sex']", 'only data.source = "folder" reads your own files'),
    ("data.target=numbr", "data.target"),
    ("data.split.by=tme", "data.split.by"),
    ("data.split={train=0.5, test=0.5, by='time'}", "time"),
    ("data.preprocess.impute=banana", "data.preprocess.impute"),
    ("data.synthetic.classes=-1", "data.synthetic.classes"),
    ("data.shakespeare.window=0", "data.shakespeare.window"),
    # the model
    ("model.name=resnet9000", "resnet9000"),
    ("model.name=unimportable:Net", "unimportable"),
    ("model.name=os:path", "os:path"),
    ("model.head=nolayer", "nolayer"),
    ("model.arguments=3", "model.arguments"),
    # the method
    ("method=3", "method"),
    ("method.name=fedpr", "did you mean 'fedper'"),
    ("method.name=unimportable:Mine", "no such thing"),
    ("method.name=unparsable:Broken", "cannot be imported"),
    ("method.name=otherwise:Thing", "Thing"),
    ("method.name=nowhere:X", "nowhere"),
    ("method.mu=3", "method needs a name"),
    ("method={name='fedavg', mu=3}", "unknown setting 'mu'"),
    ("method={name='fedprox', mu=-1}", "method.mu = -1"),
    ("method={name='fedprox', mu='big'}", "method.mu = 'big'"),
    ("method={name='bwa', policy='nowhere'}", "nowhere holds no policy"),
    ("method={name='hapfl', adapts='sizes', agents={intensity={decider='serch'}}}", "did you mean 'search'"),
    ("method={name='pfedrlla', agents=3}", "method.agents"),
    ("method={name='pfedrlla', updates=5}", "did you mean method.agents.head_weights.updates?"),
    # who takes part, and what is evaluated
    ("participation=0.5", "participation = 0.5: should be a table"),
    ("participation.ratio=0", "participation.ratio"),
    ("participation.ratio=[0.9,0.1]", "the first is larger"),
    ("participation.clients=99", "there are only"),
    ("participation.dropout=1", "participation.dropout"),
    ("participation.absent=[[1]]", "participation.absent"),
    ("evaluation.every=-1", "evaluation.every"),
    ("evaluation.models=['hold']", "evaluation.models"),
    ("evaluation.keep_models=-1", "evaluation.keep_models"),
    ("evaluation.final=maybe", "evaluation.final"),
    ("evaluation.measures=['nope']", "evaluation.measures.0 = 'nope': unknown measure"),
    ("evaluation.measures=[3]", "evaluation.measures.0 = 3"),
    ("evaluation.measures=['nowhere:f']", "nowhere"),
    (
        "evaluation.headline=acuracy",
        "evaluation.headline = 'acuracy': unknown measure 'acuracy': did you mean 'accuracy'",
    ),
    ("evaluation.headline=rmse", "rmse"),
    ("evaluation.new_clients=1", "evaluation.new_clients"),
    ("evaluation.new_clients=0.99", "leaves none of"),
    ("evaluation={new_clients=0.2, final=false}", "set final = true"),
    # the start, the best round and the rounds that are kept
    ("start=nowhere", "nowhere is neither a run"),
    ("start=3", "start = 3"),
    ("start={round='best'}", "start.path is missing"),
    ("start={path='x', round='frist'}", "start.round"),
    ("start={path='x', round=0}", "start.round"),
    ("start={path='broken.npz'}", "weights are in a file .safetensors"),
    ("start={path='broken.pt'}", "broken.pt cannot be read"),
    ("start={path='x', carry='all'}", "start.carry"),
    ("start={path='x', part='heads'}", "start.part"),
    ("stopping=3", "stopping = 3"),
    ("stopping.patience=0", "stopping.patience"),
    ("stopping.pacience=3", "did you mean 'patience'"),
    ("stopping.min_gain=nan", "stopping.min_gain"),
    ("stopping={min_rounds=0}", "stopping.min_rounds"),
    ("checkpoints=3", "checkpoints = 3"),
    ("checkpoints.every=0", "checkpoints.every"),
    ("checkpoints.keep=3", "checkpoints.every is missing"),
    ("checkpoints={every=1, keep=0}", "checkpoints.keep"),
    # protection
    ("aggregation=median", "aggregation = 'median': should be a table"),
    ("aggregation.kind=median", "aggregation.kind"),
    # devices and comparisons
    ("devices=3", "devices = 3"),
    ("devices.deadline=-1", "devices.deadline"),
    ("devices.availability=sometimes", "devices.availability"),
    ("compare.model=best", "compare.model"),
    ("compare.methods=[]", "compare.methods"),
]

COMMANDS = [
    (["run", "--rounds", "x"], "--rounds"),
    (["run", "--seed", "1.5"], "--seed"),
    (["run", "--workers", "none"], "--workers"),
    (["run", "--method", ""], "method"),
    (["run", "--name", ""], "name"),
    (["run", "--name", "done"], "--overwrite"),
    (["run", "--name", "junk", "--out", ".", "--overwrite"], "junk is not a run"),
    (["run", "--out", "broken.npz"], "broken.npz"),
    (["run", "--learning-rate", "0.1"], "--set training.lr="),
    (["run", "twice.toml", "list.toml"], "list.toml"),
    (["run", "twice.toml"], "twice.toml is not valid TOML"),
    (["run", "latin.toml"], "latin.toml cannot be read"),
    (["run", "junk"], "junk cannot be read"),
    (["run", "folderless.toml"], "data.folder"),
    (["run", "list.toml"], "training = [1, 2]"),
    (["run", "three.toml"], "3 problems: method.mu = -1"),
    (["run", "--set", "data.source=folder", "--set", "data.folder=nowhere"], "nowhere"),
    (["run", "--set", "data.source=folder", "--set", "data.folder=recipe"], "recipe"),
    (["run", "--set", "data.source=folder", "--set", "data.folder=junk"], "junk"),
    (["run", "--from", "nowhere", "--name", "new"], "nowhere is neither a run"),
    (["run", "--from", "junk", "--name", "new"], "junk is neither a run"),
    (["run", "--from", "broken.pt", "--name", "new"], "broken.pt cannot be read"),
    (["run", "--from", "runs/done", "--name", "new"], "has done 2 rounds, and rounds = 2"),
    (["run", "--from", "runs/done", "--at", "7", "--name", "new"], "no state of round 7: it has that of round 2"),
    (["run", "--from", "runs/done", "--at", "best", "--name", "new"], "has no best round"),
    (["run", "--from", "runs/done", "--at", "frist", "--name", "new"], "--at"),
    (["run", "--at", "best"], "it belongs to --from RUN"),
    (["run", "--from", "runs/done", "--name", "new", "--set", "model.name=linear"], "this run's model does not"),
    (
        ["run", "--from", "runs/done", "--name", "done", "--rounds", "9", "--overwrite"],
        "cannot be replaced by a run that",
    ),
    (["pretrain", "bwa", "--set", "start=runs/done"], "start: an agent is pre-trained"),
    (["tune", "--trials", "2", "--set", "start=runs/done"], "remove [start]"),
    (["diff", "runs/done"], "RUN"),
    (["diff", "runs/done", "nowhere"], "nowhere is not a run"),
    (["prune", "nowhere"], "nowhere does not exist"),
    (["prune", "runs", "--run", "dnoe", "--yes"], "unknown run 'dnoe': did you mean 'done'"),
    (["compare", "--methods", "bwa,fedavg", "--set", "method.policy=none"], "a table of its own"),
    (["prune", "runs", "--states"], "nothing was deleted: confirm it with --yes"),
    (["prune", "runs", "--run", "done", "--json"], "nothing was deleted: confirm it with --yes"),
    (["compare", "--methods", ""], "compare.methods"),
    (["compare", "--methods", "fedavg;local"], "fedavg;local"),
    (["compare", "--methods", "fedavg,unimportable:Mine"], "no such thing"),
    (["compare", "--seeds", ""], "compare.seeds"),
    (["compare", "--seeds", "0,0"], "a seed appears twice"),
    (["compare", "--seeds", "-1"], "compare.seeds"),
    (["compare", "--model", "best"], "--model"),
    (["compare", "--baseline", "fedprox"], "compare.baseline = 'fedprox'"),
    (["compare", "--set", "engine.device=cuda:77"], "cuda:77"),
    (["tune", "--over", "training.lrr"], "did you mean 'lr'"),
    (["tune", "--over", "learning_rate"], "did you mean training.lr?"),
    (["tune", "--over", "method.mu"], "fedavg has no setting 'mu'"),
    (["tune", "--over", "training.lr=0.5:0.1"], "the range is empty"),
    (["tune", "--over", "training.lr=a:b"], "LOW:HIGH"),
    (["tune", "--over", "training.lr=0:1:log"], "a logarithm needs numbers above 0"),
    (["tune", "--over", "training.lr=-1:1"], "training.lr = -1"),
    (["tune", "--over", "training.lr=0.1"], "at least two values"),
    (["tune", "--over", "training.epochs=1.5:3"], "whole number"),
    (["tune", "--over", "training.weight_decay"], "give a range"),
    (["tune", "--over", "training.lr", "--over", "training.lr"], "names training.lr twice"),
    (["tune", "--over", "training.schedule"], "it is a table"),
    (["tune", "--over", "data.clients=2:9"], "a search may change settings in"),
    (["tune", "--over", "rounds"], "a search may change settings in"),
    (["tune", "--trials", "0"], "--trials 0"),
    (["tune", "--minutes", "0"], "--minutes 0"),
    (["tune", "--methods", "fedavg,fedpr"], "did you mean 'fedper'"),
    (["tune", "--methods", "fedavg,fedavg"], "twice"),
    (["tune", "--methods", "fedavg,fedprox", "--over", "method.mu"], "--over names no setting of fedavg"),
    (["tune", "--name", "done"], "runs/done exists and holds something else"),
    (["tune", "nowhere.toml"], "nowhere.toml does not exist"),
    (["tune", "--over", "=0.1:1"], "--over '=0.1:1': name a setting"),
    (["tune", "--over", "method.name=fedavg,fedper"], "tune several with --methods"),
    (["tune", "--over", "model.arguments.hidden=8:32"], "give it a value first"),
    (["tune", "--set", "method.name=fedper", "--set", "compare.model=global"], "fedper: it has no global model"),
    (["tune", "--seeds", "0,0"], "a seed appears twice"),
    (["tune", "--seeds", "-1"], "--seeds -1"),
    (["tune", "--minutes", "nan"], "--minutes nan"),
    (["advise", "--methods", "fedavg,fedpr"], "did you mean 'fedper'"),
    (["advise", "--methods", "fedavg,fedavg"], "twice"),
    (["advise", "--methods", "fedavg,apple", "--no-peers"], "--methods apple: it may show clients"),
    (["advise", "--methods", "fedalp", "--only-sums"], "--methods fedalp: secure aggregation does not fit"),
    (["advise", "--methods", "fedper", "--set", "compare.model=global"], "it has no global model"),
    (["advise", "--minutes", "-1"], "--minutes -1"),
    (["advise", "--seeds", "0,0"], "a seed appears twice"),
    (["advise", "--seeds", "a"], "--seeds"),
    (["advise", "--name", "done"], "runs/done exists and holds something else"),
    (["advise", "--set", "engine.kind=flower"], "trials run in a simulation"),
    (["advise", "nowhere.toml"], "nowhere.toml does not exist"),
    (["resume"], "RUN"),
    (["resume", "nowhere"], "nowhere is not a run"),
    (["resume", "runs/done", "--workers", "0"], "engine.workers"),
    (["resume", "runs/done", "--engine", "flower"], "--engine"),
    (["resume", "runs/done", "--rounds", "0"], "--rounds"),
    (["resume", "runs/done", "--rounds", "9999999"], "it can have more, up to 1000000"),
    (["pretrain"], "METHOD"),
    (["pretrain", "fedavg"], "no agent to pre-train"),
    (["pretrain", "bwaa"], "did you mean 'bwa'"),
    (["pretrain", "bwa", "nowhere.toml"], "nowhere.toml does not exist"),
    (["pretrain", "bwa", "--episodes", "0"], "pretrain.episodes"),
    (["pretrain", "bwa", "--set", "pretrain.keep=worst"], "pretrain.keep"),
    (["show"], "RUN"),
    (["show", "broken.npz"], "broken.npz is not a run"),
    (["list", "broken.npz"], "broken.npz"),
    (["draw", "nowhere"], "nowhere is not a run"),
    (["draw", "runs/done", "--format", "gif"], "--format"),
    (["draw", "runs/done", "--out", "broken.npz"], "broken.npz"),
    (["export", "runs/done", "--client", "-1"], "-1"),
    (["export", "runs/done", "--client", "nobody"], "nobody"),
    (["export", "runs/done", "--client", "0", "--out", "broken.npz"], "broken.npz"),
    (["export", "nowhere", "--global"], "nowhere is not a run"),
    (["export", "runs/done", "--client", "0", "--format", "onx"], "did you mean 'onnx'"),
    (["export", "runs/done", "--client", "0", "--format", ""], "name at least one format"),
    (["export", "runs/done", "--all", "--out", "junk"], "junk exists"),
    (["export", "runs/done", "--all", "--out", "broken.npz/all"], "broken.npz is not a folder"),
    (["export", "runs/done", "--all", "--global"], "--all"),
    (["export", "runs/done", "--group", "nope"], "nope"),
    (["predict"], "EXPORT"),
    (["predict", "model"], "DATA"),
    (["predict", "nowhere", "broken.npz"], "nowhere is not an export"),
    (["predict", "runs/done", "broken.npz"], "runs/done is not an export"),
    (["predict", "model", "missing.csv"], "missing.csv does not exist"),
    (["predict", "model", "broken.npz"], "broken.npz cannot be read"),
    (["predict", "model", "twice.toml"], "twice.toml is not read here"),
    (["predict", "model", "table.csv"], "table.csv is a table, but the model takes 8 x 8 pixels"),
    (["predict", "model", "recipe"], "recipe holds no PNG or JPEG images"),
    (["predict", "model", "table.csv", "--format", "onnx"], "model holds no model.onnx"),
    (["predict", "model", "table.csv", "--format", "torch"], "--format"),
    (["predict", "model", "table.csv", "--out", "broken.npz"], "broken.npz exists"),
    (["predict", "damaged", "table.csv"], "damaged holds a damaged model"),
    (["adapt", "runs/done", "--data", "broken.npz", "--format", "onx"], "did you mean 'onnx'"),
    (["adapt", "runs/done"], "--data"),
    (["adapt", "nowhere", "--data", "broken.npz"], "nowhere is not a run"),
    (["adapt", "runs/done", "--data", "broken.npz"], "broken.npz"),
    (["adapt", "runs/done", "--data", "missing.csv"], "missing.csv does not exist"),
    (["adapt", "runs/done", "--data", "broken.npz", "--passes", "-1"], "--passes"),
    (["adapt", "runs/done", "--data", "broken.npz", "--name", "a/b"], "a/b"),
    (["adapt", "runs/done", "--data", "broken.npz", "--speed", "0"], "--speed"),
    (["adapt", "runs/done", "--data", "broken.npz", "--out", "junk"], "junk exists"),
    (["reproduce"], "RECIPE"),
    (["reproduce", "nowhere"], "nowhere"),
    (["reproduce", "recipe"], "recipe"),
    (["reproduce", DEMO, "nope"], "unknown table 'nope'"),
    (["reproduce", DEMO, "--size", "huge"], "--size"),
    (["reproduce", DEMO, "--dry-run", "--from-records"], "not both"),
    (["methods", "nope"], "unknown method 'nope'"),
    (["methods", "otherwise:Thing"], "Thing"),
    (["models", "x"], "unexpected extra argument"),
    (["new", "nowhere/x.toml"], "nowhere/x.toml"),
    (["new", "junk"], "junk"),
    (["doctor", "x"], "unexpected extra argument"),
    (["data", "get"], "NAME"),
    (["data", "show", "nowhere.toml"], "nowhere.toml does not exist"),
    (["data", "deal", "--out", "broken.npz"], "broken.npz"),
    (["data", "show", "--set", "data.source=heart-disease", "--set", "data.clients=99"], "data.clients = 99"),
    (["data", "nope"], "nope"),
    (["serve", "nowhere.toml"], "nowhere.toml"),
    (["join"], "--coordinator"),
    (["join", "--coordinator", "localhost:1", "--data", "broken.npz", "--state", "st"], "--keys"),
    (["serve", "--insecure", "--keys", "k"], "not both"),
    (["keys", "add", "nokeys", "anna"], "nokeys"),
    (["keys", "nope"], "nope"),
    (["keys", "init", "k", "--node", "a/b"], "a/b"),
]
MISTAKES = [*((["run", "--set", setting], said) for setting, said in SETTINGS), *COMMANDS]


@pytest.fixture(scope="module")
def place(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a finished run and bad files; since nothing is written, all mistakes share it."""
    folder = tmp_path_factory.mktemp("mistakes")
    shutil.copytree(finished, folder / "runs" / "done")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for name in ("model", "damaged"):
        fedtailor.export_client(finished, 0, folder / name)
    (folder / "damaged" / "model.safetensors").write_bytes(b"nothing")
    (folder / "latin.toml").write_bytes(b'name = "caf\xe9"\n')
    yield folder
    for name in ("unimportable", "unparsable", "otherwise"):
        sys.modules.pop(name, None)


def listing(folder: Path) -> dict[Path, bytes]:
    """Every file and folder; a database that is read has short-lived files beside it."""
    paths = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {path: path.read_bytes() if path.is_file() else b"" for path in paths if not path.name.startswith("run.db-")}


def test_there_are_more_than_a_hundred_mistakes() -> None:
    assert len({tuple(words) for words, _ in MISTAKES}) == len(MISTAKES) > 100


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=lambda part: " ".join(part) if isinstance(part, list) else "")
def test_a_mistake_gets_one_sentence_and_writes_nothing(
    call, place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(place)
    before = listing(place)
    done = call(*words)
    assert (done.code, done.out) == (2, ""), done.err
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("error: ")
    assert said in done.err
    assert "Traceback" not in done.err
    assert listing(place) == before
