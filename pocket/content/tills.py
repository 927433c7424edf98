"""The words of tills: headings, labels of facts and of sums, thanks."""

import random
from collections.abc import Callable
from typing import Final

from pocket.content import formats, lexicon, words


def _code(rng: random.Random) -> str:
    return rng.choice(
        (formats.run(rng, "0123456789", 4, 9),
        f"{formats.run(rng, formats.LETTERS, 1, 3)}-{rng.randint(100, 99999)}",
         f"{formats.run(rng, formats.LETTERS, 1, 3)}{formats.run(rng, '0123456789', 5, 9)}",
         f"{rng.randint(1, 31):02}{rng.randint(1, 12):02}/{rng.randint(1, 9999)}",
         f"#{rng.randint(1, 99999):06}")
    )  # fmt: skip


HEADINGS: Final = (
    "RECEIPT|TAX INVOICE|INVOICE|TAX INVOICE|CASH BILL|CASH SALES|CASH RECEIPT|SALES RECEIPT|BILL|"
    "YOUR BILL|SIMPLIFIED TAX INVOICE|OFFICIAL RECEIPT|ORDER|SALE|PAYMENT RECEIPT|CHECK|RECHNUNG|"
    "FACTURA|TICKET|KVITTO|CUSTOMER COPY|TAKE AWAY|DINE IN"
).split("|")
WELCOMES: Final = (
    "WELCOME TO|THANK YOU FOR SHOPPING WITH US|*** COPY ***|DUPLICATE|** REPRINT **|"
    "YOUR LOCAL STORE|"
    "OPEN 24 HOURS|SINCE 1984|MEMBER'S COPY|FRESH EVERY DAY"
).split("|")
THANKS: Final = (
    "THANK YOU|THANK YOU AND COME BACK SOON|Thank you for your visit.|"
    "NO RETURNS ON SALE ITEMS|"
    "NO REFUND WITHOUT RECEIPT|ALL PRICES INCLUDE TAX|EXCHANGES UP TO 14 DAYS|"
    "SEE YOU SOON|"
    "HAVE A NICE DAY|KEEP THIS RECEIPT FOR YOUR RECORDS|A PLEASURE TO SERVE YOU|"
    "CUSTOMER COPY|"
    "VIELEN DANK|GRACIAS POR SU VISITA|MERCI ET A BIENTOT|Questions? Ring the shop.|"
    "*** END ***"
).split("|")
FACTS: Final[dict[str, tuple[str, Callable[[random.Random], str]]]] = {
    "invoice number": ("Invoice No|Inv No|Invoice #|Tax Invoice No|INV|Doc No|Bill No|Bill No.|"
    "Receipt No|"
                       "Receipt #|Chit|Check #|Trans|TRX|Doc. No.|Order No|Ticket",
                       lambda r: _code(r)),
    "cashier": ("Cashier|CASHIER|Server|Staff|Operator|Served by|Salesperson|User|Cashr",
                lambda r: r.choice((r.choice(words.FIRST), f"{r.randint(1, 99):02}",
                lexicon.word(r),
                                    r.choice(words.FIRST).upper(), "TILL", "LANE 2"))),
    "table": ("Table|TABLE|Table No|Tbl", lambda r: r.choice((str(r.randint(1, 60)),
              f"A{r.randint(1, 30)}"))),
    "counter": ("POS|POS No|Counter|REG|Terminal|TERM|Till|Station",
                lambda r: f"{r.randint(1, 30):02}"),
    "covers": ("Pax|Persons|Covers|Guests", lambda r: str(r.randint(1, 12))),
    "member": ("Member|Customer|Card Holder|Name|Attn", lambda r: words.person(r)),
    "payment terms": ("Terms|Payment Terms", lambda r: r.choice(("C.O.D.", "CASH", "30 days",
                      "Net 7"))),
    "approval code": ("Approval Code|APPR CODE|Auth Code|AUTH", lambda r: formats.run(r,
                      "0123456789", 6, 6)),
    "terminal ID": ("Terminal ID|TID|Term. ID", lambda r: formats.run(r, "0123456789", 5, 8)),
    "merchant ID": ("Merchant ID|MID", lambda r: formats.run(r, "0123456789", 8, 12)),
    "transaction ID": ("Transaction|Trans ID|Ref No|Ref", lambda r: formats.code(r)),
    "room": ("Room No|Room", lambda r: str(r.randint(1, 900))),
    "vehicle": ("Vehicle|Plate No|"
    "Car", lambda r: f"{formats.run(r, formats.LETTERS, 2, 3)} {r.randint(1, 9999)}"),
}  # fmt: skip
SUB: Final = "Subtotal|SUBTOTAL|Sub Total|SUB TOTAL|Sub-Total|Total Amount|Goods|Total Sales".split(
    "|"
)
BEFORE: Final = "Total excl. tax|Net Total|Total before tax|NET|Taxable|Without VAT".split("|")
TAX: Final = (
    "GST {}%|VAT {}%|SST {}%|Tax {}%|GST @ {}%|MwSt {}%|IVA {}%|Sales Tax|TVA {}%|Tax".split("|")
)
ROUND: Final = "Rounding|ROUNDING ADJ|Rounding Adjustment|Rounding Adj.|Rounded by|RND ADJ".split(
    "|"
)
TOTAL: Final = (
    "TOTAL|TOTAL|TOTAL|Total|Total|GRAND TOTAL|Grand Total|NET TOTAL|To pay|Total Amount|"
    "Amount Due|"
    "BALANCE DUE|TOTAL DUE|Total Payable|Payable|Total Rounded|Nett Total|"
    "Total incl. tax|Total with VAT|TOTAL TO PAY|SUMME|"
    "TOTAL TTC|AMOUNT"
).split("|")
CASH: Final = (
    "CASH|Cash|CASH TENDERED|Cash paid|Received|Cash Received|TENDER|Payment|BAR|EFECTIVO".split(
        "|"
    )
)
CARDS: Final = (
    "VISA|MASTERCARD|CREDIT CARD|Card|DEBIT|AMEX|EFTPOS|MASTER|Visa Card|CONTACTLESS".split("|")
)
CHANGE: Final = "CHANGE|Change|Change Due|CHANGE DUE|Cash Change|RETURN|CAMBIO".split("|")
PIECES: Final = "Total Qty|TOTAL QTY|Pieces|Item(s)|ITEMS|No. of Items|Articles".split("|")
