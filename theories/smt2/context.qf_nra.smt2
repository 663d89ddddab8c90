; context and sequence parallelism of attention
(set-logic QF_NRA)
; mean over data and context ranks: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; cp
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; summed over context ranks, averaged over data ranks: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; cp
(assert (>= x0 1))
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 x1))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the loss scaled by cp to undo a mean over cp: right where the loss is summed over cp: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x1) (* 1.0 x1)))))
(check-sat)
(pop 1)
; averaged over data ranks only: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; cp
(assert (>= x1 1))
(assert (or false (not (= (* 0.0 (* x0 x1)) (* 1.0 1.0))) (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 (* x0 x1)) (* 1.0 x0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; averaged over data ranks only: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; cp
(assert (>= x1 1))
(assert (or false (not (= (* 0.0 (* x0 x1)) (* 1.0 1.0))) (not (= (* 1.0 (* x0 x1)) (* 1.0 x0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; cp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; clip0
(assert (not (= x0 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x0 1.0) (* x0 1.0)))))
(check-sat)
(pop 1)
; the derived plan without the all-reduce of gradients: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; cp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan without the all-reduce of gradients: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; cp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan without the all-reduce of gradients: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan without the all-reduce of gradients: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; clip0
(assert (not (= x0 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x0 1.0) (* x0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of Ulysses: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; sp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan of Ulysses: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of Ulysses: program 4: coefficients, size class 2
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of Ulysses: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; clip0
(assert (not (= x0 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x0 1.0) (* x0 1.0)))))
(check-sat)
(pop 1)
; Ulysses without the all-reduce of gradients: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; sp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; Ulysses without the all-reduce of gradients: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; sp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; Ulysses without the all-reduce of gradients: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; Ulysses without the all-reduce of gradients: program 4: coefficients, size class 2
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; Ulysses without the all-reduce of gradients: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; clip0
(assert (not (= x0 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x0 1.0) (* x0 1.0)))))
(check-sat)
(pop 1)
