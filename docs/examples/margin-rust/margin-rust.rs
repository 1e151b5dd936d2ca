// Keep a session on its worker while that worker is within a margin of the least-loaded one; without a margin, always.
#![no_std]

use core::ptr::{addr_of, read};

const KEEP: i32 = 1;
const MOVE_LOAD: i32 = 3;
const MOVE_GONE: i32 = 4;
const PLACE: i32 = 5;
const MARGIN: usize = 0;

extern "C" {
    static __heap_base: u8;
}

static mut FRAME: usize = 0;
static mut STRIDE: usize = 0;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}

fn at<T>(offset: usize) -> T {
    unsafe { read((FRAME + offset) as *const T) }
}

fn param(index: usize) -> f64 {
    at(192 + 8 * index)
}

fn is_eligible(row: i32) -> bool {
    row >= 0 && at::<u8>(448 + row as usize) != 0
}

fn active_requests(row: i32) -> i32 {
    at(448 + unsafe { STRIDE } + 4 * row as usize)
}

fn answer(row: i32, reason: i32) -> i32 {
    row | reason << 16
}

fn least_loaded(n: i32) -> i32 {
    let mut best = -1;
    for row in 0..n {
        if is_eligible(row) && (best < 0 || active_requests(row) < active_requests(best)) {
            best = row;
        }
    }
    best
}

#[no_mangle]
pub extern "C" fn init(capacity: i32) -> i32 {
    let base = (addr_of!(__heap_base) as usize + 63) & !63;
    let stride = (capacity as u32 as u64 + 15) & !15;
    if base as u64 + 448 + 57 * stride > (core::arch::wasm32::memory_size(0) as u64) << 16 {
        return -2;
    }
    unsafe {
        FRAME = base;
        STRIDE = stride as usize;
    }
    base as i32
}

#[no_mangle]
pub extern "C" fn select(n: i32, bound: i32) -> i32 {
    let best = least_loaded(n);
    if !is_eligible(bound) {
        return answer(best, if bound < 0 { PLACE } else { MOVE_GONE });
    }
    let margin = param(MARGIN);
    let over = active_requests(bound) as f64 - active_requests(best) as f64;
    if margin.is_nan() || over <= margin {
        return answer(bound, KEEP);
    }
    answer(best, MOVE_LOAD)
}
