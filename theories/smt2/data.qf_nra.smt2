; data parallelism
(set-logic QF_NRA)
; all-reduce, then divide by the number of ranks: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; all-reduce forgotten: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; all-reduce forgotten: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; sum instead of mean: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; a loss that is a sum: all-reduce alone: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; micro-batches add up, one all-reduce at the end: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; mb
(assert (>= x0 1))
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the all-reduce inside the micro-batch loop, on the accumulated gradient: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* (* (/ 1.0 3.0) x0) x0) (* (/ 1.0 3.0) 1.0))) (not (= (* (/ 1.0 3.0) x0) (* (/ 1.0 3.0) 1.0))) (not (= (* (/ 1.0 3.0) x0) (* (/ 1.0 3.0) x0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the all-reduce inside the micro-batch loop, on the accumulated gradient: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* (/ 1.0 2.0) x0) (* (/ 1.0 2.0) 1.0))) (not (= (* (/ 1.0 2.0) x0) (* (/ 1.0 2.0) x0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the all-reduce inside the micro-batch loop, on the accumulated gradient: program 1: coefficients, size class 3
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the gradient is not cleared before the next step: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 0.0 x0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the gradient is not cleared before the next step: program 1: coefficients, size class 2
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; mean of the ranks' token means, counts free: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x2 Real) ; dp
(assert (>= x2 1))
(declare-const x3 Real) ; n
(assert (> x3 0))
(declare-const x4 Real) ; n[dp=0]
(assert (> x4 0))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x3) (* 1.0 (* x2 x4))))))
(check-sat)
(pop 1)
; mean of the ranks' token means, equal counts: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; value0
(assert (not (= x0 0)))
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; sum over ranks divided by the sum of their token counts: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; n
(assert (> x1 0))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x1) (* 1.0 x1)))))
(check-sat)
(pop 1)
; the derived plan: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; clip0
(assert (not (= x0 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x0 1.0) (* x0 1.0)))))
(check-sat)
(pop 1)
; the derived plan without its all-reduce: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan without its all-reduce: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan without its all-reduce: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; clip0
(assert (not (= x0 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x0 1.0) (* x0 1.0)))))
(check-sat)
(pop 1)
; accumulation over micro-batches: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; micro
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; accumulation over micro-batches: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; clip0
(assert (not (= x0 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x0 1.0) (* x0 1.0)))))
(check-sat)
(pop 1)
; hybrid sharding without the all-reduce over copies: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp_shard
(assert (>= x0 1))
(declare-const x1 Real) ; dp_replicate
(assert (>= x1 1))
(assert (or false (not (= (* 0.0 (* x0 x1)) (* 1.0 1.0))) (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; hybrid sharding without the all-reduce over copies: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp_shard
(assert (>= x0 1))
(declare-const x1 Real) ; dp_replicate
(assert (>= x1 1))
(assert (or false (not (= (* 0.0 (* x0 x1)) (* 1.0 1.0))) (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; hybrid sharding without the all-reduce over copies: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
