"""The words of tills: headings, labels of facts and of sums, thanks."""

import random
from collections.abc import Callable
from typing import Final

from rotatek.pocket.content import formats, lexicon, words


def _code(rng: random.Random) -> str:
    return rng.choice(
        (formats.run(rng, "0123456789", 4, 9),
        f"{formats.run(rng, formats.LETTERS, 1, 3)}-{rng.randint(100, 99999)}",
         f"{formats.run(rng, formats.LETTERS, 1, 3)}{formats.run(rng, '0123456789', 5, 9)}",
         f"{rng.randint(1, 9999):04}/{rng.randint(1, 9999):04}/{rng.randint(1, 99999):05}",
         f"#{rng.randint(1, 99999):06}", f"POS/{rng.randint(1, 99999)}")
    )  # fmt: skip


HEADINGS: Final = (
    "RECEIPT|TAX INVOICE|INVOICE|TAX INVOICE|CASH BILL|CASH SALES|CASH RECEIPT|SALES RECEIPT|BILL|"
    "GUEST CHECK|SIMPLIFIED TAX INVOICE|OFFICIAL RECEIPT|ORDER|SALE|PAYMENT RECEIPT|CHECK|RECHNUNG|"
    "FACTURA|TICKET|KVITTO|CUSTOMER COPY|TAKE AWAY|DINE IN"
).split("|")
WELCOMES: Final = (
    "WELCOME TO|THANK YOU FOR SHOPPING WITH US|*** COPY ***|DUPLICATE|** REPRINT **|"
    "YOUR LOCAL STORE|"
    "OPEN 24 HOURS|SINCE 1984|MEMBER'S COPY|FRESH EVERY DAY"
).split("|")
THANKS: Final = (
    "THANK YOU|THANK YOU! PLEASE COME AGAIN|Thank you. Please come again.|"
    "GOODS SOLD ARE NOT RETURNABLE|"
    "NO REFUND WITHOUT RECEIPT|PRICE INCLUSIVE OF TAX|EXCHANGE WITHIN 7 DAYS WITH RECEIPT|"
    "SEE YOU SOON|"
    "HAVE A NICE DAY|KEEP THIS RECEIPT FOR YOUR RECORDS|THANKS FOR YOUR SUPPORT|CUSTOMER COPY|"
    "VIELEN DANK|GRACIAS POR SU VISITA|MERCI ET A BIENTOT|For any enquiry please contact us|"
    "*** END ***"
).split("|")
FACTS: Final[dict[str, tuple[str, Callable[[random.Random], str]]]] = {
    "invoice number": ("Invoice No|Inv No|Invoice #|Tax Invoice No|INV|Doc No|Bill No|Bill No.|"
    "Receipt No|"
                       "Receipt #|Slip|Check #|Trans|TRX|Doc. No.|Order No|Ticket",
                       lambda r: _code(r)),
    "cashier": ("Cashier|CASHIER|Server|Staff|Operator|Served by|Salesperson|User|Cashr",
                lambda r: r.choice((r.choice(words.FIRST), f"{r.randint(1, 99):02}",
                lexicon.word(r),
                                    r.choice(words.FIRST).upper(), "ADMIN", "USER"))),
    "table": ("Table|TABLE|Table No|Tbl", lambda r: r.choice((str(r.randint(1, 60)),
              f"A{r.randint(1, 30)}"))),
    "counter": ("POS|POS No|Counter|REG|Terminal|TERM|Till|Station",
                lambda r: f"{r.randint(1, 30):02}"),
    "covers": ("Pax|Pax(s)|Covers|Guests", lambda r: str(r.randint(1, 12))),
    "member": ("Member|Customer|Card Holder|Name|Attn", lambda r: words.person(r)),
    "payment terms": ("Terms|Payment Terms", lambda r: r.choice(("C.O.D.", "CASH", "30 days",
                      "Net 7"))),
    "approval code": ("Approval Code|APPR CODE|Auth Code|AUTH", lambda r: formats.run(r,
                      "0123456789", 6, 6)),
    "terminal ID": ("Terminal ID|TID|Term. ID", lambda r: formats.run(r, "0123456789", 5, 8)),
    "merchant ID": ("Merchant ID|MID", lambda r: formats.run(r, "0123456789", 8, 12)),
    "transaction ID": ("Transaction ID|Trans ID|Ref No|Ref", lambda r: formats.code(r)),
    "room": ("Room No|Room", lambda r: str(r.randint(1, 900))),
    "vehicle": ("Vehicle|Plate No|"
    "Car", lambda r: f"{formats.run(r, formats.LETTERS, 2, 3)} {r.randint(1, 9999)}"),
}  # fmt: skip
SUB: Final = (
    "Subtotal|SUBTOTAL|Sub Total|SUB TOTAL|Sub-Total|Total Amount|Gross Amt|Total Sales".split("|")
)
BEFORE: Final = (
    "Total Excl. GST|Amt. Excl. GST|Net Total|Total (Excluding GST)|Total before tax|NET".split("|")
)
TAX: Final = (
    "GST {}%|VAT {}%|SST {}%|Tax {}%|GST @ {}%|MwSt {}%|IVA {}%|Sales Tax|TVA {}%|Total GST".split(
        "|"
    )
)
ROUND: Final = "Rounding|ROUNDING ADJ|Rounding Adjustment|Rounding Adj.|Round Adj|RND ADJ".split(
    "|"
)
TOTAL: Final = (
    "TOTAL|TOTAL|TOTAL|Total|Total|GRAND TOTAL|Grand Total|NET TOTAL|Net Amt|Total Amount|"
    "Amount Due|"
    "BALANCE DUE|TOTAL DUE|Total Payable|Total Amt Payable|Total Rounded|TOTAL ROUNDED|Nett Total|"
    "Total Sales (Inclusive of GST)|Total Incl. GST|Total Amt Incl. GST|TOTAL TO PAY|SUMME|"
    "TOTAL TTC|AMOUNT"
).split("|")
CASH: Final = (
    "CASH|Cash|CASH TENDERED|Paid Amount|Received|Cash Received|TENDER|Payment|BAR|EFECTIVO".split(
        "|"
    )
)
CARDS: Final = (
    "VISA|MASTERCARD|CREDIT CARD|Card|DEBIT|AMEX|EFTPOS|MASTER|Visa Card|CONTACTLESS".split("|")
)
CHANGE: Final = "CHANGE|Change|Change Due|CHANGE DUE|Cash Change|RETURN|CAMBIO".split("|")
PIECES: Final = (
    "Total Qty|TOTAL QTY|Qty(s)|Item(s)|ITEMS|No. of Items|Total Item(s)|Total Qty Tender".split(
        "|"
    )
)
