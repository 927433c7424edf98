"""Cut free fonts down to Latin letters and rename them, as their licences ask of modified copies.

`python -m pocket.layouts.subset_fonts SOURCE_FOLDER` searches for the files listed in `PICKED`
below SOURCE_FOLDER (Debian's font packages unpacked there) and writes `assets/fonts`.
Needs fontTools; nothing else in the project does.
"""

import sys
from pathlib import Path
from typing import Final

from fontTools import subset
from fontTools.ttLib import TTFont

from pocket.glyphs import GLYPHS

# slug -> file name; the slug's part before the dash is the family
PICKED: Final = {
    "arimo-regular": "Arimo-Regular.ttf",
    "arimo-bold": "Arimo-Bold.ttf",
    "arimo-italic": "Arimo-Italic.ttf",
    "narrow-regular": "OpenSans-CondLight.ttf",
    "tinos-regular": "Tinos-Regular.ttf",
    "tinos-bold": "Tinos-Bold.ttf",
    "tinos-italic": "Tinos-Italic.ttf",
    "cousine-regular": "Cousine-Regular.ttf",
    "dejavu-regular": "DejaVuSans.ttf",
    "dejavu-bold": "DejaVuSans-Bold.ttf",
    "dejavuserif-regular": "DejaVuSerif.ttf",
    "dejavumono-regular": "DejaVuSansMono.ttf",
    "dejavucondensed-regular": "DejaVuSansCondensed.ttf",
    "notosans-regular": "NotoSans-Regular.ttf",
    "notosans-bold": "NotoSans-Bold.ttf",
    "notosans-italic": "NotoSans-Italic.ttf",
    "notoserif-regular": "NotoSerif-Regular.ttf",
    "notoserif-bold": "NotoSerif-Bold.ttf",
    "roboto-regular": "Roboto-Regular.ttf",
    "roboto-medium": "Roboto-Medium.ttf",
    "roboto-bold": "Roboto-Bold.ttf",
    "roboto-light": "Roboto-Light.ttf",
    "robotocondensed-regular": "RobotoCondensed-Regular.ttf",
    "opensans-regular": "OpenSans-Regular.ttf",
    "opensans-semibold": "OpenSans-Semibold.ttf",
    "opensanscond-bold": "OpenSans-CondBold.ttf",
    "inter-regular": "Inter-Regular.otf",
    "inter-semibold": "Inter-SemiBold.otf",
    "cantarell-regular": "Cantarell-Regular.otf",
    "cantarell-bold": "Cantarell-Bold.otf",
    "comfortaa-regular": "Comfortaa-Regular.ttf",
    "quicksand-medium": "Quicksand-Medium.ttf",
    "quicksand-bold": "Quicksand-Bold.ttf",
    "firacode-regular": "FiraCode-Regular.ttf",
    "hack-regular": "Hack-Regular.ttf",
    "inconsolata-regular": "Inconsolata.otf",
    "courierprime-regular": "Courier Prime.otf",
    "ebgaramond-regular": "EBGaramond12-Regular.ttf",
    "ebgaramond-italic": "EBGaramond12-Italic.ttf",
    "caladea-regular": "Caladea-Regular.ttf",
    "caladea-bold": "Caladea-Bold.ttf",
    "libertine-regular": "LinLibertine_R.otf",
    "dosis-medium": "Dosis-Medium.otf",
    "karla-regular": "Karla-Regular.otf",
    "spartan-semibold": "LeagueSpartan-SemiBold.otf",
    "dancing-bold": "DancingScript-Bold.otf",
    "comicneue-regular": "ComicNeue-Regular.otf",
    # families that training never sees
    "carlito-regular": "Carlito-Regular.ttf",
    "carlito-bold": "Carlito-Bold.ttf",
    "lato-regular": "Lato-Regular.ttf",
    "lato-bold": "Lato-Bold.ttf",
    "vollkorn-regular": "Vollkorn-Regular.ttf",
    "jetbrains-regular": "JetBrainsMono-Regular.ttf",
    "cabin-regular": "Cabin-Regular.otf",
    "cabin-semibold": "Cabin-SemiBold.otf",
    "play-regular": "Play-Regular.ttf",
    "yrsa-medium": "Yrsa-Medium.ttf",
    "manrope-medium": "Manrope-Medium.ttf",
    "robotoslab-regular": "RobotoSlab-Regular.otf",
    "clearsans-regular": "ClearSans-Regular.ttf",
    "clearsans-bold": "ClearSans-Bold.ttf",
    "lobster-regular": "LobsterTwo-Regular.otf",
    "biolinum-regular": "LinBiolinum_R.otf",
}


def subset_one(source: Path, target: Path, name: str) -> None:
    """Write `target`: the glyphs of `GLYPHS` and the space, renamed, licence notes kept."""
    font = TTFont(source)
    options = subset.Options()
    options.layout_features = []
    options.drop_tables += ["kern", "GPOS", "GSUB", "GDEF"]
    options.hinting = False
    options.notdef_outline = True
    options.name_IDs = [0, 1, 2, 3, 4, 6, 13, 14]
    options.name_languages = [0x409]
    worker = subset.Subsetter(options)
    worker.populate(text=GLYPHS + " \u00a0")
    worker.subset(font)
    for record in font["name"].names:
        if record.nameID in (1, 3, 4):
            record.string = f"RotateK {name}"
        elif record.nameID == 6:
            record.string = f"RotateK-{name}"
    font.save(target)


def main() -> None:
    """Write every picked font and say how large they are together."""
    source = [Path(p) for p in sys.argv[1:]]
    target = Path(__file__).parents[2] / "assets" / "fonts"
    target.mkdir(parents=True, exist_ok=True)
    total = 0
    for slug, file in PICKED.items():
        found = next(p for folder in source for p in sorted(folder.rglob(file)))
        path = target / (slug + found.suffix.lower())
        subset_one(found, path, slug)
        total += path.stat().st_size
    print(f"{len(PICKED)} fonts, {total / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
