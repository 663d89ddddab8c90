; norm integrity
(set-logic QF_NRA)
; a sharded and a whole group, counted once each: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the whole group counted on every rank: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; tp
(assert (>= x0 1))
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(declare-const x2 Real) ; clip2
(assert (not (= x2 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x2 1.0)))))
(check-sat)
(pop 1)
; the norm of shards without the sum over their ranks: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x3 Real) ; clip3
(assert (not (= x3 0)))
(declare-const x4 Real) ; clip4[dp=0]
(assert (not (= x4 0)))
(declare-const x5 Real) ; clip5[dp=1]
(assert (not (= x5 0)))
(assert (or false (not (= (* 0.0 (* x0 x0)) (* 1.0 1.0))) (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 (* x0 x0)))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x4 x0) (* x3 x0))) (not (= (* x5 x0) (* x3 x0)))))
(check-sat)
(pop 1)
; the norm of shards, summed over their ranks: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 (* x0 x0)) (* 1.0 (* x0 x0)))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 x0) (* x1 x0)))))
(check-sat)
(pop 1)
; the norm taken before the gradients are summed: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(declare-const x2 Real) ; clip2
(assert (not (= x2 0)))
(assert (or false (not (= (* 0.0 (* x0 x0)) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 x0) (* x2 x0)))))
(check-sat)
(pop 1)
; the derived plan of tensor parallelism, clipped: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of tensor parallelism, clipped: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of tensor parallelism, clipped: program 6: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the derived plan of ZeRO-3 and tensor parallelism, clipped: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan of ZeRO-3 and tensor parallelism, clipped: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of ZeRO-3 and tensor parallelism, clipped: program 6: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x2 Real) ; clip2
(assert (not (= x2 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x2 1.0) (* x2 1.0)))))
(check-sat)
(pop 1)
