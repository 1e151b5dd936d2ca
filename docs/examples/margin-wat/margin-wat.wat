;; Keep a session on its worker while that worker is within a margin of the least-loaded one; without a margin, always.
;; Nothing but the three exports of the ABI: the frame stands at address 64.
(module
  (memory (export "memory") 16)
  ;; Rows of a column: the capacity rounded up to a multiple of sixteen.
  (global $stride (mut i32) (i32.const 0))

  (func (export "init") (param $capacity i32) (result i32)
    (if (i32.gt_u (local.get $capacity) (i32.const 16384)) (then (return (i32.const -2))))
    (global.set $stride (i32.and (i32.add (local.get $capacity) (i32.const 15)) (i32.const -16)))
    (i32.const 64))

  ;; eligible[row]: the first column, a byte a row, behind the header of 448 bytes.
  (func $eligible (param $row i32) (result i32)
    (i32.load8_u offset=512 (local.get $row)))

  ;; active_requests[row]: the second column, 32 bits a row.
  (func $load (param $row i32) (result i32)
    (i32.load offset=512 (i32.add (global.get $stride) (i32.shl (local.get $row) (i32.const 2)))))

  (func $least_loaded (param $n i32) (result i32)
    (local $row i32) (local $best i32)
    (local.set $best (i32.const -1))
    (block $done
      (loop $next
        (br_if $done (i32.ge_s (local.get $row) (local.get $n)))
        (if (call $eligible (local.get $row))
          (then
            (if (i32.lt_s (local.get $best) (i32.const 0))
              (then (local.set $best (local.get $row)))
              (else
                (if (i32.lt_s (call $load (local.get $row)) (call $load (local.get $best)))
                  (then (local.set $best (local.get $row))))))))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $next)))
    (local.get $best))

  (func $answer (param $row i32) (param $reason i32) (result i32)
    (i32.or (local.get $row) (i32.shl (local.get $reason) (i32.const 16))))

  (func (export "select") (param $n i32) (param $bound i32) (result i32)
    (local $best i32) (local $margin f64)
    (local.set $best (call $least_loaded (local.get $n)))
    ;; No binding: 5 place. A worker that is not eligible: 4 move_gone.
    (if (i32.lt_s (local.get $bound) (i32.const 0))
      (then (return (call $answer (local.get $best) (i32.const 5)))))
    (if (i32.eqz (call $eligible (local.get $bound)))
      (then (return (call $answer (local.get $best) (i32.const 4)))))
    ;; The first parameter, at 192 in the frame. NaN is null, and equal to nothing: 1 keep.
    (local.set $margin (f64.load (i32.const 256)))
    (if (f64.ne (local.get $margin) (local.get $margin))
      (then (return (call $answer (local.get $bound) (i32.const 1)))))
    (if (f64.le
          (f64.sub
            (f64.convert_i32_s (call $load (local.get $bound)))
            (f64.convert_i32_s (call $load (local.get $best))))
          (local.get $margin))
      (then (return (call $answer (local.get $bound) (i32.const 1)))))
    ;; 3 move_load.
    (call $answer (local.get $best) (i32.const 3))))
