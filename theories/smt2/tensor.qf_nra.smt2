; tensor and sequence parallelism
(set-logic QF_NRA)
; the column and row pair: partial results are summed: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the column and row pair without the all-reduce: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; a non-linear function after the sum: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; a non-linear function on a pending sum: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0)))))
(check-sat)
(pop 1)
; the bias of a row matrix, added after the all-reduce: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the bias of a row matrix, added before the all-reduce: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; tp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; a norm under sequence parallelism: each rank has part of its gradient, summed over tp: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; a norm under sequence parallelism without the sum over tp: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; a norm under sequence parallelism without the sum over tp: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; key and value heads replicated in groups: summed over the replicas: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; key and value heads replicated in groups: not summed: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; key and value heads replicated in groups: not summed: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; key and value heads replicated in groups: summed over all of tp: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan: program 6: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the derived plan with sequence parallelism: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan with sequence parallelism: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan with sequence parallelism: program 6: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the derived plan without the all-reduce of the norms: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan without the all-reduce of the norms: program 2: coefficients, size class 1
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan without the all-reduce of the norms: program 2: coefficients, size class 2
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan without the all-reduce of the norms: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan without the all-reduce of the norms: program 6: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the derived plan without one all-reduce of activations: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan without one all-reduce of activations: program 5: coefficients, size class 1
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan without one all-reduce of activations: program 6: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the derived plan of ZeRO-3, tensor and pipeline parallelism together: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; micro
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of ZeRO-3, tensor and pipeline parallelism together: program 2: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x2 Real) ; micro
(assert (>= x2 1))
(assert (or false (not (= (* 1.0 (* x0 x2)) (* 1.0 (* x0 x2)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of ZeRO-3, tensor and pipeline parallelism together: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of ZeRO-3, tensor and pipeline parallelism together: program 6: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x3 Real) ; clip3
(assert (not (= x3 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x3 1.0) (* x3 1.0)))))
(check-sat)
(pop 1)
