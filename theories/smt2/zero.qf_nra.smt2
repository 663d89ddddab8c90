; ZeRO, stages 1 to 3; FSDP; HSDP
(set-logic QF_NRA)
; stage 1: every owner updates its shard and publishes it: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; mb
(assert (>= x0 1))
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; stage 1 without publishing the updated shards: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; stage 1 without publishing the updated shards: program 1: coefficients, size class 2
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; stage 1 published before the update: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 0.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; stage 2: every micro-batch is reduced to its owner: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; mb
(assert (>= x0 1))
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; micro-batches overwrite instead of adding up: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; mb
(assert (>= x0 1))
(declare-const x1 Real) ; dp
(assert (>= x1 1))
(assert (or false (not (= (* 0.0 (* x0 x1)) (* 1.0 1.0))) (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; stage 3: parameters are gathered for every use and dropped: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; HSDP: a mean over shards and a mean over replicas: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; ds
(assert (>= x0 1))
(declare-const x1 Real) ; dr
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; HSDP: a mean over shards and a sum over replicas: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; ds
(assert (>= x0 1))
(declare-const x1 Real) ; dr
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 x0))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; a whole-tensor optimizer on a shard: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 0.0 1.0))) (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; a whole-tensor optimizer that owns whole tensors: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan of stage 1: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan of stage 1: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the derived plan of stage 2 with micro-batches: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(declare-const x1 Real) ; micro
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of stage 2 with micro-batches: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the derived plan of stage 3: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan of stage 3: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the derived plan of FSDP: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 x0)))))
(check-sat)
(pop 1)
; the derived plan of FSDP: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; the derived plan of HSDP: program 1: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x0 Real) ; dp_shard
(assert (>= x0 1))
(declare-const x1 Real) ; dp_replicate
(assert (>= x1 1))
(assert (or false (not (= (* 1.0 (* x0 x1)) (* 1.0 (* x0 x1)))) (not (= (* 1.0 1.0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; the derived plan of HSDP: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
; stage 3 whose gradients are not divided by the number of ranks: program 1: coefficients, size class 1
(push 1)
(set-info :status sat)
(declare-const x0 Real) ; dp
(assert (>= x0 1))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* 1.0 x0) (* 1.0 1.0)))))
(check-sat)
(pop 1)
; stage 3 whose gradients are not divided by the number of ranks: program 4: coefficients, size class 1
(push 1)
(set-info :status unsat)
(declare-const x1 Real) ; clip1
(assert (not (= x1 0)))
(assert (or false (not (= (* 1.0 1.0) (* 1.0 1.0))) (not (= (* x1 1.0) (* x1 1.0)))))
(check-sat)
(pop 1)
