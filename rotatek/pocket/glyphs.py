"""The characters that documents are written in: the classes of the auxiliary glyph loss."""

ASCII = "".join(chr(c) for c in range(33, 127))
ACCENTED = (
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ"
    "ĀāĂăĄąĆćČčĎďĐđĒēĖėĘęĚěĞğĢģĪīĮįİıĶķĹĺĻļĽľŁłŃńŅņŇňŌōŐőŒœŔŕŘřŚśŞşŠšŢţŤťŪūŮůŰűŲųŹźŻżŽž"
    "ȘșȚț"
)
SIGNS = "€£¥¢§©®°±²³µ¶·¹º»«¼½¾¿¡×÷–—‘’‚“”„†•…‰‹›™−"
GLYPHS = ASCII + ACCENTED + SIGNS
CLASS_OF = {ch: i for i, ch in enumerate(GLYPHS)}
N_CLASSES = len(GLYPHS)
