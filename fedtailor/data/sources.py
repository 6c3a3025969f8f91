"""Sources: where samples come from.

``SOURCES`` lists the known data sets with their licence, their published files and the function that
reads them; ``load`` also serves the sources "synthetic" and "folder".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtailor.errors import UserError

from .files import File, SourceFiles
from .formats import bundled, cifar, heart, idx, news, omniglot, photos, plays, usps
from .samples import Samples, with_statistics

if TYPE_CHECKING:
    from .settings import DataSettings


@dataclass(frozen=True)
class Source:
    """A known data set.

    ``canonical`` are the files its authors publish, ``compact`` smaller ones with the same content
    (``note`` says if not). ``folders`` are other usual places of the files.
    ``parts`` are other sources it is made from.
    """

    name: str
    title: str
    licence: str
    homepage: str
    citation: str
    read: Callable[..., Samples]
    canonical: tuple[File, ...] = ()
    compact: tuple[File, ...] = ()
    folders: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    note: str = ""
    divided: bool = False  # its groups are its clients, such as hospitals: by default they are not dealt out anew
    options: str = ""  # the table of the settings with arguments of ``read``
    preprocess: Mapping[str, Any] = field(default_factory=dict)  # [data.preprocess] if the settings have none


def load(settings: "DataSettings", seed: int) -> Samples:
    """All samples of the chosen source."""
    if settings.source == "synthetic":
        from .synthetic import synthetic

        return synthetic(settings.synthetic, seed)
    if settings.source == "folder":
        from .folder import folder

        return folder(settings.folder, settings.roles)
    if settings.source == "python":
        raise UserError("the clients' data were given in Python and are not stored: pass them again with federation=")
    if settings.source == "nodes":
        raise UserError("the clients' data are with the nodes of the federation: only 'fedtailor serve' reaches them")
    options = SOURCES[settings.source].options
    return read(settings.source, settings.directory, **(getattr(settings, options).model_dump() if options else {}))


def read(name: str, directory: Path, **options: Any) -> Samples:
    """All samples of a known source whose files lie in a directory (or below it)."""
    source = SOURCES[name]
    return source.read(*(_files_of(SOURCES[part], directory) for part in (name, *source.parts)), **options)


def _files_of(source: Source, directory: Path) -> SourceFiles:
    return SourceFiles(directory, source.name, source.folders, source.compact)


def _digits(_: SourceFiles) -> Samples:
    images, classes = bundled.digits()
    pixels = np.floor(images * 255 / 16 + 0.5).astype(np.uint8)  # values 0..16
    return with_statistics(
        Samples(
            x=pixels[..., None],
            y=classes.astype(np.int64),
            classes=idx.DIGITS,
            official_test=np.zeros(len(pixels), bool),
        )
    )


def _mnist_star(_: SourceFiles, mnist: SourceFiles, usps_digits: SourceFiles, blended: SourceFiles) -> Samples:
    """Three domains of the same ten digits, all 28x28 with three channels."""
    small = usps.usps(usps_digits)
    framed = np.pad(small.x, ((0, 0), (6, 6), (6, 6), (0, 0)))
    domains = [idx.mnist(mnist), small, photos.blended_digits(blended, mnist)]
    images = [domains[0].x, framed, domains[2].x]
    samples = Samples(
        x=np.concatenate([np.broadcast_to(x, (len(x), 28, 28, 3)) for x in images]),
        y=np.concatenate([domain.y for domain in domains]),
        classes=idx.DIGITS,
        official_test=np.concatenate([domain.official_test for domain in domains]),
        groups=np.repeat(np.arange(3), [len(domain) for domain in domains]),
        group_names=("mnist", "usps", "mnist_m"),
    )
    return with_statistics(samples)


def _at(bases: tuple[str, ...], name: str, **facts: str | int) -> File:
    return File(name, tuple(base + name for base in bases), **facts)  # type: ignore[arg-type]


_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_FASHION = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
_CIFAR = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
_USPS = (
    "https://hastie.su.domains/ElemStatLearn/datasets/",
    "https://web.stanford.edu/~hastie/ElemStatLearn/datasets/",
)
_OMNIGLOT = (
    "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/",
    "https://github.com/brendenlake/omniglot/raw/master/python/",
)
_AG_NEWS = ("https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/",)
_SHAKESPEARE = ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",)
_TINY = ("http://cs231n.stanford.edu/", "https://cs231n.stanford.edu/")
_BSDS = (
    "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/",
    "http://www.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/",
)

_ALL = (
    Source(
        name="digits",
        title="Handwritten digits of 8x8 pixels",
        licence="CC BY 4.0",
        homepage="https://archive.ics.uci.edu/dataset/80",
        citation="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, 1998",
        read=_digits,
        note="comes with scikit-learn; nothing to download",
    ),
    Source(
        name="mnist",
        title="MNIST handwritten digits",
        licence="CC BY-SA 3.0",
        homepage="http://yann.lecun.com/exdb/mnist/",
        citation="LeCun, Cortes and Burges, The MNIST database of handwritten digits, 1998",
        read=idx.mnist,
        canonical=(
            _at(
                _MNIST,
                "train-images-idx3-ubyte.gz",
                size=9912422,
                md5="f68b3c2dcbeaaa9fbdd348bbdeb94873",
                sha256="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            _at(
                _MNIST,
                "train-labels-idx1-ubyte.gz",
                size=28881,
                md5="d53e105ee54ea40749a09fcbcd1e9432",
                sha256="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            _at(
                _MNIST,
                "t10k-images-idx3-ubyte.gz",
                size=1648877,
                md5="9fb629c4189551a2d022fa330f9573f3",
                sha256="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            _at(
                _MNIST,
                "t10k-labels-idx1-ubyte.gz",
                size=4542,
                md5="ec29112dd5afa0611ce80d1b7f02629c",
                sha256="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        folders=("mnist/raw", "MNIST/raw", "MNIST"),
    ),
    Source(
        name="fashion-mnist",
        title="Fashion-MNIST articles of clothing",
        licence="MIT",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        citation="Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017",
        read=idx.fashion_mnist,
        canonical=(
            _at(
                _FASHION,
                "train-images-idx3-ubyte.gz",
                size=26421880,
                md5="8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                sha256="3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            _at(
                _FASHION,
                "train-labels-idx1-ubyte.gz",
                size=29515,
                md5="25c81989df183df01b3e8a0aad5dffbe",
                sha256="a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            _at(
                _FASHION,
                "t10k-images-idx3-ubyte.gz",
                size=4422102,
                md5="bef4ecab320f06d8554ea6380940ec79",
                sha256="346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            _at(
                _FASHION,
                "t10k-labels-idx1-ubyte.gz",
                size=5148,
                md5="bb300cfdad3c16e7a12a480ee83cd310",
                sha256="67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
        folders=("fashion-mnist/raw", "FashionMNIST/raw", "FashionMNIST", "fashion_mnist"),
    ),
    Source(
        name="cifar10",
        title="CIFAR-10 photos of 10 kinds of things",
        licence="none stated; cite the paper",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        citation="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
        read=cifar.cifar10,
        canonical=(_at(_CIFAR, "cifar-10-binary.tar.gz", size=170052171, md5="c32a1d4ab5d03f1284b67883e8d87530"),),
        compact=(
            File(
                "data_batch_1.npz",
                size=17268774,
                sha256="ea0fd6617fec25069471781ec520baf14cac2378c8479f61c407d638667407ca",
            ),
            File(
                "data_batch_2.npz",
                size=17317583,
                sha256="fd8219d02862fc5560b5eda03cf58d3f0bea188f4e4bdbe335200c71bada2464",
            ),
            File(
                "data_batch_3.npz",
                size=17319316,
                sha256="2e900daf8e6246a96abc80a4c2ac931a531619d3d2feacbceebaa6076dd779cc",
            ),
            File(
                "data_batch_4.npz",
                size=17290295,
                sha256="f33d0fc3ffbd8e58220f838c0aef32f09c8bb801e654efab5bef5b60e3aa7ed8",
            ),
            File(
                "data_batch_5.npz",
                size=17259176,
                sha256="8f43de2b760add155167fc3fb64b399a059b667efdda8f529527c272766c4a07",
            ),
            File(
                "test_batch.npz",
                size=17300089,
                sha256="9c29178086ef11f57632a7c32e82da90f5dc5b928f94ef31b52c28eadafbb4c3",
            ),
        ),
        folders=("cifar-10", "CIFAR10"),
    ),
    Source(
        name="cifar100",
        title="CIFAR-100 photos of 100 kinds of things",
        licence="none stated; cite the paper",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        citation="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
        read=cifar.cifar100,
        canonical=(_at(_CIFAR, "cifar-100-binary.tar.gz", md5="03b5dce01913d631647c71ecec9e9cb8"),),
        compact=(
            File(
                "cifar100_subset.npz",
                size=35281760,
                sha256="6f84469b54216f7edbff935c9405824488708ffb695e537d6de1e50d646c77ca",
            ),
        ),
        folders=("cifar-100", "CIFAR100"),
        note="the compact file is a subset (160 train and 40 test images per class) and not the official "
        "split: do not compare accuracies on it with published ones",
    ),
    Source(
        name="usps",
        title="USPS handwritten digits of 16x16 pixels",
        licence="none stated; research use",
        homepage="https://hastie.su.domains/ElemStatLearn/data.html",
        citation="Hull, A database for handwritten text recognition research, 1994",
        read=usps.usps,
        canonical=(_at(_USPS, "zip.train.gz"), _at(_USPS, "zip.test.gz")),
        compact=(
            File(
                "usps.npz",
                size=1090850,
                sha256="98acc70a81ea0ad2d0b7ed0890ca40b50713c9894a4ed3b213032c40454a23ec",
            ),
        ),
        folders=("USPS",),
        note="grey values are rounded to 8 bits",
    ),
    Source(
        name="mnist-m",
        title="MNIST digits blended with colour photos",
        licence="CC BY-SA 3.0 (digits); non-commercial research and education (photos)",
        homepage="https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/resources.html",
        citation="Ganin and Lempitsky, Unsupervised Domain Adaptation by Backpropagation, 2015; "
        "Arbelaez, Maire, Fowlkes and Malik, Contour Detection and Hierarchical Image Segmentation, 2011",
        read=photos.mnist_m,
        canonical=(_at(_BSDS, "BSR_bsds500.tgz"),),
        compact=(
            File(
                "bsds500_train_crops.npz",
                size=6818155,
                sha256="08e69de4627dcf9eb50e8c6082681ff96e11582de6b9db1b3ec587e378e0fe0e",
            ),
        ),
        folders=("mnist_m", "BSDS500"),
        parts=("mnist",),
        note="made from MNIST and the BSDS500 photos by the authors' recipe; not the file they published",
    ),
    Source(
        name="mnist-star",
        title="MNIST*: the digits of MNIST, USPS and MNIST-M as three domains",
        licence="that of its three parts",
        homepage="that of its three parts",
        citation="that of its three parts",
        read=_mnist_star,
        parts=("mnist", "usps", "mnist-m"),
    ),
    Source(
        name="omniglot",
        title="Omniglot characters of 50 alphabets by 20 drawers",
        licence="MIT",
        homepage="https://github.com/brendenlake/omniglot",
        citation="Lake, Salakhutdinov and Tenenbaum, "
        "Human-level concept learning through probabilistic program induction, 2015",
        read=omniglot.omniglot,
        canonical=(
            _at(_OMNIGLOT, "images_background.zip", md5="68d2efa1b9178cc56df9314c21c6e718"),
            _at(_OMNIGLOT, "images_evaluation.zip", md5="6b91aef0f799c5bb55b94e3f2daec811"),
        ),
        compact=(
            File(
                "omniglot.npz",
                size=4243877,
                sha256="9b87bae69da8029edf77e6a3a06621989fbc00af522221718e058d427be71bb2",
            ),
        ),
        folders=("omniglot-py",),
        note="drawer numbers are per alphabet: drawer 3 of two alphabets need not be the same person",
    ),
    Source(
        name="ag-news",
        title="AG News titles and descriptions of four topics",
        licence="research and other non-commercial use",
        homepage="http://groups.di.unipi.it/~gulli/AG_corpus_of_news_articles.html",
        citation="Zhang, Zhao and LeCun, Character-level Convolutional Networks, 2015",
        read=news.ag_news,
        canonical=(
            _at(_AG_NEWS, "train.csv", md5="b1a00f826fdfbd249f79597b59e1dc12"),
            _at(_AG_NEWS, "test.csv", size=1857427, md5="d52ea96a97a2d943681189a97654912d"),
        ),
        compact=(
            File(
                "train_subset.csv.gz",
                size=2260268,
                sha256="f7d3f4b71c14c5653f57e63983cf5fd2709552362f00a4d8a722c93931de9d85",
            ),
            File(
                "test.csv.gz",
                size=749484,
                sha256="a0687337e1d12c4c6e06e96e5ffaf0cdbfc59a2a20614bd7598a4f4b167b6eec",
            ),
        ),
        folders=("ag_news", "ag_news_csv"),
        note="the compact train file is a subset of 22,262 of 120,000 texts",
    ),
    Source(
        name="heart-disease",
        title="Heart disease: the patients of four hospitals",
        licence="CC BY 4.0",
        homepage="https://doi.org/10.24432/C52P4X",
        citation="Janosi, Steinbrunn, Pfisterer and Detrano, Heart Disease, UCI Machine Learning Repository, 1988",
        read=heart.heart_disease,
        note="comes with FedTailor; every hospital is a client; many values are missing",
        divided=True,
        preprocess={"standardise": True, "impute": "mean", "indicator": True},
    ),
    Source(
        name="shakespeare",
        title="Shakespeare's plays: the next character that a role speaks",
        licence="public domain",
        homepage="https://github.com/karpathy/char-rnn",
        citation="Karpathy, The Unreasonable Effectiveness of Recurrent Neural Networks, 2015; "
        "McMahan, Moore, Ramage, Hampson and Aguera y Arcas, Communication-Efficient Learning of Deep Networks, 2017",
        read=plays.shakespeare,
        canonical=(
            _at(
                _SHAKESPEARE,
                "input.txt",
                size=1115394,
                sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ),
        ),
        note="every speaking role is a client; roles of the same name in several plays are one",
        divided=True,
        options="shakespeare",
    ),
    Source(
        name="tiny-imagenet",
        title="Tiny ImageNet photos of 200 kinds of things",
        licence="non-commercial research, as ImageNet",
        homepage="http://cs231n.stanford.edu/",
        citation="Le and Yang, Tiny ImageNet Visual Recognition Challenge, 2015",
        read=photos.tiny_imagenet,
        canonical=(
            _at(
                _TINY,
                "tiny-imagenet-200.zip",
                size=248100043,
                md5="90528d7ca1a48142e341f4ef8d21d0de",
            ),
        ),
        note="the official validation images are the test split; needs the Python package 'pillow'",
    ),
)

SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
