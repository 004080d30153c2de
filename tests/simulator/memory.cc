#include "tests/simulator/memory.h"

#include <c10/util/Exception.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tandem::testing {
namespace {

constexpr size_t kGranule = 512;  // of LibTorch's allocator on CUDA
constexpr size_t kPage = 4096;

size_t RoundUp(size_t size, size_t granule) { return (size + granule - 1) / granule * granule; }

uintptr_t Number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

struct Mappings {
  std::byte* host;
  std::byte* on_stream;
};

Mappings MapTwice(const char* name, size_t size_bytes, int host_protection) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  TORCH_CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(size_bytes)) == 0, "simulator: no ",
              size_bytes, " bytes for ", name, ": ", std::strerror(errno));
  const auto map = [&](int protection) {
    void* const mapped = mmap(nullptr, size_bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
    TORCH_CHECK(mapped != MAP_FAILED, "simulator: mmap of ", name, ": ", std::strerror(errno));
    return static_cast<std::byte*>(mapped);
  };
  const Mappings mappings{map(host_protection), map(PROT_READ | PROT_WRITE)};
  close(fd);
  return mappings;
}

// For the handler of faults, which may take no lock.
uintptr_t device_begin, device_end, pinned_begin, pinned_end;
struct sigaction former_action;

// Says what happened, then lets the fault kill the process.
void OnFault(int signal, siginfo_t* info, void*) {
  const uintptr_t address = Number(info->si_addr);
  char text[400];
  int length = 0;
  if (address >= device_begin && address < device_end) {
    length = std::snprintf(
        text, sizeof(text),
        "simulator: host code dereferenced %p, memory of simulated:%d. Only work on the device's "
        "streams may touch it: copy the tensor to the host first.\n",
        info->si_addr,
        static_cast<int>((address - device_begin) / SimulatedMemory::kBytesOfDevice));
  } else if (address >= pinned_begin && address < pinned_end) {
    length = std::snprintf(
        text, sizeof(text),
        "simulator: host code touched %p, pinned memory that a queued copy still writes or reads. "
        "Synchronize with the copy's stream first.\n",
        info->si_addr);
  }
  if (length > 0 && write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) std::abort();
  sigaction(signal, &former_action, nullptr);  // the access repeats, and faults for good
}

}  // namespace

SimulatedMemory& SimulatedMemory::Get() {
  static SimulatedMemory& memory = *new SimulatedMemory();
  return memory;
}

SimulatedMemory::SimulatedMemory() {
  const Mappings devices = MapTwice("simulated devices", device_bytes_, PROT_NONE);
  host_ = devices.host;
  on_stream_ = devices.on_stream;
  const Mappings pinned = MapTwice("pinned memory", kPinnedBytes, PROT_READ | PROT_WRITE);
  pinned_ = pinned.host;
  pinned_on_stream_ = pinned.on_stream;
  device_begin = Number(host_);
  device_end = device_begin + device_bytes_;
  pinned_begin = Number(pinned_);
  pinned_end = pinned_begin + kPinnedBytes;
  struct sigaction action = {};
  action.sa_sigaction = &OnFault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &former_action);
}

void* SimulatedMemory::Allocate(int device, int64_t stream, size_t size_bytes) {
  if (size_bytes == 0) return nullptr;
  const size_t size = RoundUp(size_bytes, kGranule);
  absl::MutexLock lock(&mu_);
  auto& free = free_[{device, stream}];
  // The smallest that fits, the latest of its size; the rest of it stays free.
  const auto found = free.lower_bound(size);
  uintptr_t address = 0;
  if (found != free.end()) {
    address = std::prev(free.upper_bound(found->first))->second;
    RemoveFree(address);
    Block& block = blocks_[address];
    if (block.size_bytes > size) {
      AddFree(address + size, {block.size_bytes - size, device, stream, false});
      block.size_bytes = size;
    }
  } else {
    TORCH_CHECK_WITH(OutOfMemoryError, used_[device] + size <= kBytesOfDevice, "simulated:", device,
                     " has no ", size_bytes, " bytes left");
    address = Number(host_) + device * kBytesOfDevice + used_[device];
    used_[device] += size;
    blocks_[address] = {size, device, stream, false};
  }
  Block& block = blocks_[address];
  block.allocated = true;
  allocated_[device] += block.size_bytes;
  peak_[device] = std::max(peak_[device], allocated_[device]);
  return reinterpret_cast<void*>(address);
}

void SimulatedMemory::Free(void* block) {
  if (block == nullptr) return;
  absl::MutexLock lock(&mu_);
  uintptr_t address = Number(block);
  Block freed = blocks_.at(address);
  TORCH_INTERNAL_ASSERT(freed.allocated);
  freed.allocated = false;
  allocated_[freed.device] -= freed.size_bytes;
  // One block with its free neighbours of the same stream.
  const auto joins = [&](const Block& other) {
    return !other.allocated && other.device == freed.device && other.stream == freed.stream;
  };
  const auto next = blocks_.find(address + freed.size_bytes);
  if (next != blocks_.end() && joins(next->second)) {
    freed.size_bytes += next->second.size_bytes;
    RemoveFree(next->first);
    blocks_.erase(next);
  }
  const auto here = blocks_.find(address);
  if (here != blocks_.begin()) {
    const auto before = std::prev(here);
    if (before->first + before->second.size_bytes == address && joins(before->second)) {
      freed.size_bytes += before->second.size_bytes;
      address = before->first;
      RemoveFree(address);
      blocks_.erase(here);
    }
  }
  AddFree(address, freed);
}

void SimulatedMemory::AddFree(uintptr_t address, const Block& block) {
  blocks_[address] = block;
  free_[{block.device, block.stream}].emplace(block.size_bytes, address);
}

void SimulatedMemory::RemoveFree(uintptr_t address) {
  const Block& block = blocks_.at(address);
  auto& free = free_[{block.device, block.stream}];
  const auto [first, last] = free.equal_range(block.size_bytes);
  free.erase(std::find_if(first, last, [&](const auto& one) { return one.second == address; }));
}

void* SimulatedMemory::AllocatePinned(size_t size_bytes) {
  if (size_bytes == 0) return nullptr;
  const size_t size = RoundUp(size_bytes, kPage);
  absl::MutexLock lock(&mu_);
  TORCH_CHECK_WITH(OutOfMemoryError, pinned_used_ + size <= kPinnedBytes,
                   "simulator: no pinned memory for ", size_bytes, " bytes");
  std::byte* const block = pinned_ + pinned_used_;
  pinned_used_ += size;
  pinned_blocks_[Number(block)] = {size, -1, 0, true};
  return block;
}

// Addresses of pinned memory are never given out again, so that a use after the end is found.
void SimulatedMemory::FreePinned(void* block) {
  if (block == nullptr) return;
  absl::MutexLock lock(&mu_);
  pinned_blocks_.at(Number(block)).allocated = false;
}

int SimulatedMemory::DeviceOf(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  if (byte < host_ || byte >= host_ + device_bytes_) return -1;
  return static_cast<int>((byte - host_) / static_cast<ptrdiff_t>(kBytesOfDevice));
}

bool SimulatedMemory::IsPinned(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  return byte >= pinned_ && byte < pinned_ + kPinnedBytes;
}

std::map<uintptr_t, SimulatedMemory::Block>::const_iterator SimulatedMemory::Find(
    const std::map<uintptr_t, Block>& blocks, const void* address) const {
  auto next = blocks.upper_bound(Number(address));
  if (next == blocks.begin()) return blocks.end();
  --next;
  return Number(address) < next->first + next->second.size_bytes ? next : blocks.end();
}

bool SimulatedMemory::IsAllocated(const void* address, size_t size_bytes) const {
  absl::MutexLock lock(&mu_);
  const auto& blocks = IsPinned(address) ? pinned_blocks_ : blocks_;
  const auto found = Find(blocks, address);
  return found != blocks.end() && found->second.allocated &&
         Number(address) + size_bytes <= found->first + found->second.size_bytes;
}

std::byte* SimulatedMemory::OnStream(const void* address) const {
  const auto* const byte = static_cast<const std::byte*>(address);
  if (IsPinned(address)) return pinned_on_stream_ + (byte - pinned_);
  TORCH_INTERNAL_ASSERT(DeviceOf(address) >= 0, "not an address of a simulated device");
  return on_stream_ + (byte - host_);
}

const void* SimulatedMemory::PinnedBlockOf(const void* address) const {
  absl::MutexLock lock(&mu_);
  const auto found = Find(pinned_blocks_, address);
  TORCH_INTERNAL_ASSERT(found != pinned_blocks_.end());
  return reinterpret_cast<const void*>(found->first);
}

void SimulatedMemory::SetHostAccess(const void* address, HostAccess access) {
  absl::MutexLock lock(&mu_);
  const auto found = Find(pinned_blocks_, address);
  TORCH_INTERNAL_ASSERT(found != pinned_blocks_.end());
  const int protection = access == HostAccess::kNone   ? PROT_NONE
                         : access == HostAccess::kRead ? PROT_READ
                                                       : PROT_READ | PROT_WRITE;
  TORCH_INTERNAL_ASSERT(
      mprotect(reinterpret_cast<void*>(found->first), found->second.size_bytes, protection) == 0);
}

size_t SimulatedMemory::allocated_bytes(int device) const {
  absl::MutexLock lock(&mu_);
  return allocated_[device];
}

size_t SimulatedMemory::peak_bytes(int device) const {
  absl::MutexLock lock(&mu_);
  return peak_[device];
}

}  // namespace tandem::testing
