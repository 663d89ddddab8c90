; pipeline parallelism
(set-logic QF_NRA)
; micro-batches of a stage add up: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; mb
(assert (>= x0 1))
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; only the last micro-batch counts: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; mb
(assert (>= x0 1))
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 0.0 (* x0 x1)) (* 1.0 1.0))) (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; a tied embedding: the gradients of both ends are summed: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x1) (* 1.0 x1)))))
(check-sat)
(pop 1)
; a tied embedding: the gradients of both ends are summed: program 1: coefficients, size class 2
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x1) (* 1.0 x1)))))
(check-sat)
(pop 1)
; a tied embedding without the sum over its stages: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; a tied embedding without the sum over its stages: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 0.0 1.0))) (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; a tied embedding without the sum over its stages: program 1: coefficients, size class 3
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; a tied embedding, scattered then summed, both stages cut it alike: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; a tied embedding, scattered then summed, each stage cuts it its own way: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; a tied embedding, scattered then summed, each stage cuts it its own way: program 1: coefficients, size class 2
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; micro
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the derived plan whose micro-batches overwrite: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; micro
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 x0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan whose micro-batches overwrite: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan whose micro-batches overwrite: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; gradients of weights in a pass of their own: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; micro
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; gradients of weights in a pass of their own: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; gradients of weights in a pass of their own: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x2 Real) ; clip2
(assert (not (= x2 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x2 1.0) (* x2 1.0)))))
(check-sat)
(pop 1)
; gradients of weights in a pass of their own that does not reduce them: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; micro
(assert (>= x1 1))
(assert (or false (not (= (* 0.0 (* x0 x1)) (* 1.0 1.0))) (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; gradients of weights in a pass of their own that does not reduce them: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; gradients of weights in a pass of their own that does not reduce them: program 5: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x2 Real) ; clip2
(assert (not (= x2 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x2 1.0) (* x2 1.0)))))
(check-sat)
(pop 1)
