// Fibers of the emulated threads, and the order in which they come. Never compiled with a sanitizer:
// its own accesses are no race of a kernel.
#include "tests/support/cuda_emulation.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

// ThreadSanitizer's own functions, if the program is linked with it.
extern "C" {
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void* fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
}

namespace tandem::cuda_emulation {
namespace {

// Also holds what ThreadSanitizer needs to report a race.
constexpr size_t kStackBytes = size_t{256} << 10;
// A switch alone orders nothing: only barriers do.
constexpr unsigned kWithoutOrder = 1;

bool UnderThreadSanitizer() { return __tsan_create_fiber != nullptr; }

[[noreturn]] void Fail(const char* what, dim3 block, int thread) {
  std::fprintf(stderr, "emulated kernel, block %u,%u, thread %d: %s\n", block.x, block.y, thread,
               what);
  std::abort();
}

uint64_t Seed() {
  const char* const text = std::getenv("TANDEM_EMULATION_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// Threads that wait for one another: a block, or a warp. One that has ended is not waited for.
struct Barrier {
  int alive = 0;
  int arrived = 0;
  uint64_t generation = 0;
};

struct Warp {
  int size = 0;
  Barrier barrier;   // of __syncwarp()
  Barrier exchange;  // of exchanges, which order no memory
  uint64_t slots[kLanes] = {};
};

struct Fiber {
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  void* sanitizer = nullptr;  // its counterpart in ThreadSanitizer
  ucontext_t start;
  jmp_buf place;
  bool begun = false;
  bool ended = false;
};

// Visits 0 .. count - 1, each once, in an order that looks random, without a list of them.
class Scattered {
 public:
  Scattered(uint64_t count, std::mt19937_64& random) : count_(count) {
    if (count < 2) return;
    first_ = random() % count;
    do {
      step_ = 1 + random() % (count - 1);
    } while (std::gcd(step_, count) != 1);
  }
  uint64_t At(uint64_t i) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(step_) * i + first_) % count_);
  }

 private:
  uint64_t count_;
  uint64_t first_ = 0;
  uint64_t step_ = 1;
};

}  // namespace

struct Gpu::State {
  std::mt19937_64 random{Seed()};
  int64_t launches = 0;
  cudaError_t error = cudaSuccess;
  std::function<bool(dim3)> only;
  size_t allowed_shared = 0;  // that the next launch has opted in for

  dim3 grid, index;
  int threads = 0;
  int thread = 0;      // whose turn it is
  uint64_t waits = 0;  // grows whenever a thread comes further
  const std::function<void()>* kernel = nullptr;
  jmp_buf scheduler;
  void* sanitizer = nullptr;  // the scheduler's
  std::vector<std::unique_ptr<Fiber>> fibers;
  Barrier block;
  std::vector<Warp> warps;
  std::vector<double> dynamic;
  int count = 0;

  Warp& warp() { return warps[thread / kLanes]; }

  void SwitchTo(void* fiber) {
    if (UnderThreadSanitizer()) __tsan_switch_to_fiber(fiber, kWithoutOrder);
  }
  // What a thread did before Release() of an object is ordered before what follows Acquire() of it.
  static void Release(void* object) {
    if (UnderThreadSanitizer()) __tsan_release(object);
  }
  static void Acquire(void* object) {
    if (UnderThreadSanitizer()) __tsan_acquire(object);
  }

  void RunBlock(size_t shared_bytes) {
    // A kernel reads only what it has written.
    dynamic.assign(shared_bytes / sizeof(double) + 1, std::numeric_limits<double>::quiet_NaN());
    block = {threads, 0, 0};
    warps.assign((threads + kLanes - 1) / kLanes, {});
    for (int t = 0; t < threads; ++t) {
      Warp& of = warps[t / kLanes];
      of.barrier.alive = of.exchange.alive = ++of.size;
      fibers[t]->begun = fibers[t]->ended = false;
    }
    Release(this);
    // Both ends of what a GPU may do: all warps in step, or one as far ahead as it gets.
    const bool in_step = random() % 2 == 0;
    std::vector<int> order(warps.size());
    std::iota(order.begin(), order.end(), 0);
    for (int left = threads; left > 0;) {
      const int left_before = left;
      const uint64_t waits_before = waits;
      std::shuffle(order.begin(), order.end(), random);
      for (const int w : order) {
        uint64_t before;
        do {
          before = waits;
          left -= RunWarp(w);
        } while (!in_step && waits != before);
      }
      if (left == left_before && waits == waits_before) {
        Fail("every thread waits; some never reach the barrier of the others", index, thread);
      }
    }
    Acquire(this);
  }

  // Gives each thread of a warp a turn; returns how many ended.
  int RunWarp(int w) {
    int lanes[kLanes];
    const int size = warps[w].size;
    std::iota(lanes, lanes + size, w * kLanes);
    std::shuffle(lanes, lanes + size, random);
    int ended = 0;
    for (int i = 0; i < size; ++i) {
      Fiber& fiber = *fibers[lanes[i]];
      if (fiber.ended) continue;
      Resume(lanes[i]);
      ended += fiber.ended ? 1 : 0;
    }
    return ended;
  }

  void Resume(int t) {
    thread = t;
    Fiber& fiber = *fibers[t];
    if (_setjmp(scheduler) != 0) return;
    SwitchTo(fiber.sanitizer);
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = kStackBytes;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, &State::Start, 0);
    setcontext(&fiber.start);
  }

  static void Start() {
    State& state = *Current().state_;
    Acquire(&state);
    (*state.kernel)();
    Release(&state);
    state.fibers[state.thread]->ended = true;
    Leave(state.warp().barrier, state.waits);
    Leave(state.warp().exchange, state.waits);
    Leave(state.block, state.waits);
    state.Yield();
    std::abort();  // an ended thread gets no turn
  }

  // Returns to the scheduler, and from it with the thread's next turn.
  void Yield() {
    Fiber& fiber = *fibers[thread];
    if (_setjmp(fiber.place) != 0) return;
    SwitchTo(sanitizer);
    _longjmp(scheduler, 1);
  }

  static void Leave(Barrier& barrier, uint64_t& waits) {
    --barrier.alive;
    ++waits;
    if (barrier.alive > 0 && barrier.arrived == barrier.alive) Open(barrier);
  }
  static void Open(Barrier& barrier) {
    barrier.arrived = 0;
    ++barrier.generation;
  }

  void Wait(Barrier& barrier) {
    ++waits;
    const uint64_t generation = barrier.generation;
    if (++barrier.arrived == barrier.alive) {
      Open(barrier);
    } else {
      const int me = thread;
      while (barrier.generation == generation) Yield();
      thread = me;
    }
    ++waits;
  }

  void WaitInOrder(Barrier& barrier) {
    Release(&barrier);
    Wait(barrier);
    Acquire(&barrier);
  }

  void CheckLanes(unsigned lanes) {
    if (lanes != 0xFFFFFFFFu) Fail("an exchange among part of a warp", index, thread);
    if (warp().exchange.alive != kLanes) {
      Fail("an exchange names lanes that have ended, or do not exist", index, thread);
    }
  }
};

Gpu::Gpu() : state_(new State) {
  if (UnderThreadSanitizer()) state_->sanitizer = __tsan_get_current_fiber();
}

Gpu::~Gpu() {
  for (const auto& fiber : state_->fibers) {
    if (fiber->sanitizer != nullptr) __tsan_destroy_fiber(fiber->sanitizer);
  }
}

Gpu& Gpu::Current() {
  static thread_local Gpu gpu;
  return gpu;
}

cudaError_t Gpu::AllowShared(size_t bytes) {
  if (bytes > kMaxOptInSharedBytes) return cudaErrorInvalidValue;
  state_->allowed_shared = bytes;
  return cudaSuccess;
}

void Gpu::Launch(dim3 grid, dim3 threads, size_t shared_bytes,
                 const std::function<void()>& kernel) {
  ++state_->launches;
  const bool valid = grid.x > 0 && grid.y > 0 && grid.z == 1 && grid.x <= kMaxGridX &&
                     grid.y <= kMaxGridY && threads.x > 0 && threads.x <= kMaxThreads &&
                     threads.y == 1 && threads.z == 1 &&
                     shared_bytes <= std::max(kMaxSharedBytes, state_->allowed_shared);
  state_->allowed_shared = 0;
  if (!valid) {
    state_->error = cudaErrorInvalidConfiguration;
    return;
  }
  state_->grid = grid;
  state_->threads = static_cast<int>(threads.x);
  state_->kernel = &kernel;
  while (state_->fibers.size() < threads.x) {
    state_->fibers.push_back(std::make_unique<Fiber>());
    if (UnderThreadSanitizer()) state_->fibers.back()->sanitizer = __tsan_create_fiber(0);
  }
  const uint64_t blocks = uint64_t{grid.x} * grid.y;
  const Scattered order(blocks, state_->random);
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t at = order.At(i);
    const dim3 index(static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x), 0);
    if (state_->only != nullptr && !state_->only(index)) continue;
    state_->index = index;
    state_->RunBlock(shared_bytes);
  }
}

int64_t Gpu::launches() const { return state_->launches; }

cudaError_t Gpu::LastError() { return std::exchange(state_->error, cudaSuccess); }

void Gpu::set_only(std::function<bool(dim3 block)> only) { state_->only = std::move(only); }

dim3 Gpu::thread_index() const { return dim3(state_->thread, 0, 0); }
dim3 Gpu::block_index() const { return state_->index; }
dim3 Gpu::block_size() const { return dim3(state_->threads); }
dim3 Gpu::grid_size() const { return state_->grid; }
void* Gpu::dynamic_shared() const { return state_->dynamic.data(); }
int Gpu::lane() const { return state_->thread % kLanes; }

void Gpu::SyncBlock() { state_->WaitInOrder(state_->block); }
void Gpu::SyncWarp() { state_->WaitInOrder(state_->warp().barrier); }

int Gpu::CountBlock(bool mine) {
  state_->count += mine ? 1 : 0;
  SyncBlock();
  const int count = state_->count;
  SyncBlock();
  state_->count = 0;
  SyncBlock();
  return count;
}

unsigned Gpu::Ballot(unsigned lanes, bool mine) {
  State& state = *state_;
  state.CheckLanes(lanes);
  state.warp().slots[lane()] = mine ? 1 : 0;
  state.Wait(state.warp().exchange);
  unsigned votes = 0;
  for (int i = 0; i < kLanes; ++i) votes |= static_cast<unsigned>(state.warp().slots[i]) << i;
  state.Wait(state.warp().exchange);
  return votes;
}

uint64_t Gpu::Exchange(unsigned lanes, uint64_t bits, int from) {
  State& state = *state_;
  state.CheckLanes(lanes);
  state.warp().slots[lane()] = bits;
  state.Wait(state.warp().exchange);
  const uint64_t found = state.warp().slots[from % kLanes];
  state.Wait(state.warp().exchange);
  return found;
}

}  // namespace tandem::cuda_emulation
