"""Right programs as derived plans give them, and the mutants of any program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from placement_proofs.program import (
    Loop,
    Move,
    Program,
    Reduce,
    Source,
    Step,
    Take,
    Tick,
)
from placement_proofs.program.text import parse_program

ACCUMULATE = """
  loop mb {
    if mb.first:  grad g  = c[OVER,mb] x=1/mb
    if mb.!first: grad g += c[OVER,mb] x=1/mb
  }
"""

RIGHT = {
    "data": """
        axes dp; spec W = c[dp,mb]/(dp*mb); copy w of W
        loop step { use w; ACC(dp) mean g dp; update w g; tick }""",
    "zero1": """
        axes dp; spec W = c[dp,mb]/(dp*mb); copy w of W; copy m of W held=dp:p
        loop step { use w; ACC(dp) mean g dp to=p; update m g; set w m; gather w dp; tick }""",
    "zero2 (reduce every micro-batch)": """
        axes dp; spec W = c[dp,mb]/(dp*mb); copy w of W; copy m of W held=dp:p
        loop step {
          use w
          loop mb {
            grad t = c[dp,mb] x=1/mb; mean t dp to=p
            if mb.first: set g t
            if mb.!first: add g t
          }
          update m g; set w m; gather w dp; tick
        }""",
    "zero2 (reduce on the last micro-batch)": """
        axes dp; spec W = c[dp,mb]/(dp*mb); copy w of W; copy m of W held=dp:p
        loop step {
          use w
          loop mb {
            if mb.first:  grad g  = c[dp,mb] x=1/mb
            if mb.!first: grad g += c[dp,mb] x=1/mb
            if mb.last: mean g dp to=p
          }
          update m g; set w m; gather w dp; tick
        }""",
    "zero3": """
        axes dp; spec W = c[dp,mb]/(dp*mb); copy w of W held=dp:p; copy view of W
        loop step {
          loop mb {
            set view w; gather view dp; use view
            grad t = c[dp,mb] x=1/mb; mean t dp to=p
            if mb.first: set g t
            if mb.!first: add g t
          }
          update w g; tick
        }""",
    "hsdp": """
        axes dr ds; spec W = c[dr,ds]/(dr*ds); copy w of W held=ds:p; copy view of W
        loop step {
          set view w; gather view ds; use view
          grad g = c[dr,ds]; mean g ds to=p; mean g dr; update w g; tick
        }""",
    "tensor": """
        axes dp tp
        spec W = c[dp]/dp; spec K = k[dp,tp]/dp; spec N = d[dp]/dp
        copy w of W held=tp:p; copy kv of K; copy n of N
        loop step {
          use w; use kv; use n
          grad g = c[dp] held=tp:p; mean g dp
          grad h = k[dp,tp]; sum h tp; mean h dp
          grad f = d[dp]; mean f dp
          update w g; update kv h; update n f; tick
        }""",
    "sequence-parallel norm": """
        axes dp tp; spec N = d[dp,tp]/dp; copy n of N
        loop step { use n; grad f = d[dp,tp]; sum f tp; mean f dp; update n f; tick }""",
    "gathered norm averaged": """
        axes tp; spec N = d[]; copy n of N
        loop step { use n; grad f = d[]; mean f tp; update n f; tick }""",
    "tied embedding": """
        axes pp dp; spec E = x[dp]/dp + y[dp]/dp; copy e of E
        buffer g
        loop step {
          if pp@first: use e
          if pp@last: use e
          zero g
          if pp@first: grad g += x[dp]
          if pp@last: grad g += y[dp]
          sum g pp; mean g dp; update e g; tick
        }""",
    "tied embedding, stored twice": """
        axes pp dp; spec E = x[dp]/dp + y[dp]/dp
        copy a of E held=pp:first,dp:p; copy b of E held=pp:last,dp:p
        loop step {
          use a; use b
          grad ga = x[dp] held=pp:first; grad gb = y[dp] held=pp:last
          mean ga dp to=p; mean gb dp to=p
          take ga pp first; take gb pp last
          set s ga; add s gb; set t s
          slice s pp first; slice t pp last
          update a s; update b t; tick
        }""",
    "stages": """
        axes pp dp; spec W = c[dp,mb]/(dp*mb) clip=all; copy w of W held=pp:s,dp:p
        loop step {
          use w
          loop mb {
            if mb.first:  grad g  = c[dp,mb] x=1/mb held=pp:s
            if mb.!first: grad g += c[dp,mb] x=1/mb held=pp:s
          }
          mean g dp to=p; square q = g; sum q dp,pp; clip g by q; update w g; tick
        }""",
    "expert": """
        axes edp ep; spec W = c[edp,ep]/(edp*ep); copy w of W held=ep:p,edp:p
        loop step {
          use w
          grad g = c[edp,ep] sum=ep held=ep:p
          sum g edp to=p; scale g 1/(edp*ep); update w g; tick
        }""",
    "clip with several groups": """
        axes dp tp ep
        spec W = c[dp,ep]/(dp*ep) clip=all
        spec N = d[dp,ep,tp]/(dp*ep) clip=all
        spec X = x[dp,ep]/(dp*ep) clip=all
        copy w of W held=tp:t,dp:p,ep:p; copy n of N; copy x of X held=ep:e,dp:p
        loop step {
          use w; use n; use x
          grad g = c[dp,ep] held=tp:t; mean g dp,ep to=p
          grad h = d[dp,ep,tp]; sum h tp; mean h dp,ep
          grad k = x[dp,ep] sum=ep held=ep:e; sum k dp to=p; scale k 1/(dp*ep)
          square q = g; sum q tp,dp,ep
          square r = h; add q r
          square s = k; sum s ep,dp; add q s
          clip g h k by q
          update w g; update n h; update x k; tick
        }""",
    "token weights": """
        axes dp sp; spec W = c[dp,sp,mb]/n; copy w of W
        loop step {
          use w
          loop mb {
            if mb.first:  count k  = n[dp,sp,mb]
            if mb.!first: count k += n[dp,sp,mb]
          }
          sum k dp,sp
          loop mb {
            if mb.first:  grad g  = c[dp,sp,mb] x=dp*sp/k
            if mb.!first: grad g += c[dp,sp,mb] x=dp*sp/k
          }
          mean g dp,sp; update w g; tick
        }""",
    "mean of token means, equal counts": """
        axes dp; equal n; spec W = c[dp]/n; copy w of W
        loop step { use w; count k = n[dp]; grad g = c[dp] x=1/k; mean g dp; update w g; tick }""",
    "context": """
        axes dp cp; spec W = c[dp,cp]/dp; copy w of W
        loop step { use w; grad g = c[dp,cp] x=cp; mean g dp,cp; update w g; tick }""",
    "broadcast at start": """
        axes dp tp; spec W = c[dp]/dp; copy w of W vary=dp,tp
        take w dp first; take w tp first
        loop step { use w; grad g = c[dp]; mean g dp; update w g; tick }""",
    "whole-tensor optimizer, layer-wise": """
        axes dp; spec W = c[dp]/dp update=whole; copy w of W; copy m of W held=dp:tensor
        loop step {
          use w; grad g = c[dp]; mean g dp to=tensor; update m g
          set w m; take w dp tensor; tick
        }""",
    "activation edge": """
        axes tp; grad y = c[tp]; sum y tp; apply z = gelu(y); expect z is gelu(c[tp])""",
    "error feedback": """
        axes dp
        grad g = c[dp]; apply q = compress(g); set e g; add e q x=-1
        set t q; add t e; sum t dp; expect t is c[dp]""",
    "local steps, agreement at the sync": """
        axes dp; draw w = start; grad g = c[dp]; apply w = step(w, g); mean w dp
        expect w agree about=state""",
}


def right(name: str) -> Program:
    """One of the right programs."""
    text = RIGHT[name]
    for over in ("dp",):
        text = text.replace(f"ACC({over})", ACCUMULATE.replace("OVER", over))
    return replace(parse_program(text, place=name), name=name)


def mutants(program: Program) -> Iterator[tuple[str, Program]]:
    """One-step edits: drop, repeat, rescale, regroup, add for overwrite, other position."""
    for what, steps in _edits(program.steps, program.axes):
        yield what, replace(program, steps=steps)


def _edits(
    steps: tuple[Step, ...], axes: tuple[str, ...]
) -> Iterator[tuple[str, tuple[Step, ...]]]:
    for index, step in enumerate(steps):
        before, after = steps[:index], steps[index + 1 :]
        if isinstance(step, Loop):
            for what, body in _edits(step.body, axes):
                if body:
                    yield what, (*before, replace(step, body=body), *after)
            continue
        if not isinstance(step, Tick):
            yield f"drop {step}", (*before, *after)
            yield f"repeat {step}", (*before, step, step, *after)
        if index + 1 < len(steps):
            yield f"swap {step}", (*before, steps[index + 1], step, *steps[index + 2 :])
        for other in _changed(step, axes):
            yield f"{step} -> {other}", (*before, other, *after)


def _changed(step: Step, axes: tuple[str, ...]) -> Iterator[Step]:
    match step:
        case Reduce():
            yield replace(step, mean=not step.mean)
            for axis in axes:
                chosen = tuple(a for a in step.axes if a != axis)
                if axis not in step.axes:
                    chosen = (*step.axes, axis)
                if chosen:
                    yield replace(step, axes=chosen)
        case Source():
            yield replace(step, add=not step.add)
            for axis in step.over:
                if axis in axes and axis not in step.summed:
                    yield replace(step, summed=(*step.summed, axis))
        case Move():
            yield replace(step, add=not step.add)
        case Take():
            yield replace(step, pos="last" if step.pos == "first" else "first")
        case _:
            return
