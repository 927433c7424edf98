"""The characters that documents are written in: the classes of the auxiliary glyph loss."""

from typing import Final

ASCII: Final = "".join(chr(c) for c in range(33, 127))
ACCENTED: Final = (
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ"
    "ĀāĂăĄąĆćČčĎďĐđĒēĖėĘęĚěĞğĢģĪīĮįİıĶķĹĺĻļĽľŁłŃńŅņŇňŌōŐőŒœŔŕŘřŚśŞşŠšŢţŤťŪūŮůŰűŲųŹźŻżŽž"
    "ȘșȚț"
)
SIGNS: Final = "€£¥¢§©®°±²³µ¶·¹º»«¼½¾¿¡×÷–—‘’‚“”„†•…‰‹›™−"
GLYPHS: Final = ASCII + ACCENTED + SIGNS
CLASS_OF: Final = {ch: i for i, ch in enumerate(GLYPHS)}
N_CLASSES: Final = len(GLYPHS)
