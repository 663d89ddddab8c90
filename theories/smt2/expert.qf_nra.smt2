; expert parallelism
(set-logic QF_NRA)
; summed over expert-data ranks, divided by all ranks: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; edp
(assert (>= x0 1))
(declare-const x1 Real) ; ep
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; divided by the expert-data ranks only: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; edp
(assert (>= x0 1))
(declare-const x1 Real) ; ep
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 x0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; summed over ep again, which mixes experts: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; edp
(assert (>= x0 1))
(declare-const x1 Real) ; ep
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 0.0 x1))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; ep
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan: program 5: coefficients, size class 2
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
; the derived plan whose experts are not summed over data ranks: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; ep
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan whose experts are not summed over data ranks: program 4: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; ep
(assert (>= x1 1))
(assert (or false (not (= (* 0.0 (* x0 x1)) (* 1.0 1.0))) (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan whose experts are not summed over data ranks: program 4: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; ep
(assert (>= x1 1))
(assert (or false (not (= (* 0.0 (* x0 x1)) (* 1.0 1.0))) (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan whose experts are not summed over data ranks: program 6: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan whose experts are not summed over data ranks: program 6: coefficients, size class 2
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan whose experts are not summed over data ranks: program 7: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
