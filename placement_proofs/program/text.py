"""The text form of element programs.

One statement a line (or between `;`), `#` starts a comment:

    axes dp tp                              mesh axes
    size dp 4                               a fixed size (others are free)
    equal n                                 token counts n are assumed to be equal
    spec W = c[dp,mb]/(dp*mb) clip=all      a parameter and its gradient on one device
    copy w of W held=dp:p vary=dp           a physical copy, its layout, initial differences
    buffer acc held=dp:p                    a plain buffer that starts as zero
    loop mb { ... }                         turns in order
    input x own=dp   layer y = f(x, w)      the forward pass, from which `back(y, w)` follows
    edge z = gather y tp back=slice         a collective on an activation, and its backward
    grad g = back(l, w)                     contributions to the gradient of w, from l back
    grad g = c[dp,mb] x=1/mb                own contributions (`+=` adds; sum=, held=)
    count k = n[dp]                         own token count
    sum g dp,tp   mean g dp to=p            all-reduce, reduce-scatter to owner p
    take g dp first   gather g dp           broadcast, all-gather from owner p
    slice g dp p   scale g 1/k              keep the own shard, rescale
    set a b x=-1   add a b   zero a         copy, accumulate, clear
    apply y = gelu(x)   whole y = f(x)      element by element, or of whole tensors
    draw d = dropout.1 vary=dp              random draw or opaque state
    square q = g h   clip g h by q          squared norm, clipping
    use w   update w g   tick               forward, optimizer, end of the step
    expect y is c[tp]   expect y agree axes=dp   expect y same z
    if dp > 1 and mb.!last and pp@first: sum g dp

`shard=dp,tp` is short for `held=dp:p,tp:p`. `program.file` reads TOML files that hold a text.
"""

from placement_proofs.program.file import Claim, ProgramFile, load_file, load_program
from placement_proofs.program.parse import parse_program
from placement_proofs.program.print import format_program

__all__ = ["Claim", "ProgramFile", "format_program", "load_file", "load_program", "parse_program"]
