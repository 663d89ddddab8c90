; liveness of copies
(set-logic QF_NRA)
; a gathered copy that is refreshed every step: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; a gathered copy that is kept over the update: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; a gathered copy that is kept over the update: program 1: coefficients, size class 2
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; an offloaded parameter: the host is written, the device refreshed: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; an offloaded parameter: the device keeps what it had: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; an offloaded parameter: the device keeps what it had: program 1: coefficients, size class 2
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; an offloaded parameter with a second writer, whose gradient is not reduced: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; an offloaded parameter with a second writer, whose gradient is not reduced: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; recomputation replays the random stream: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; recomputation draws anew: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan with recomputation and offload: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan with recomputation and offload: program 6: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
