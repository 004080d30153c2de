#include "common/comm/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace tandem::comm {
namespace {

// Small enough to stay in a core's cache between the copy in and the copy out, large enough that
// waking a peer costs little beside it.
constexpr int64_t kLargestSlot = 256 << 10;
constexpr int64_t kSmallestSlot = 8 << 10;
constexpr int64_t kChannelBudget = 16 << 20;  // of one kind of channels

int64_t SlotBytes(int size) {
  const int64_t pairs = static_cast<int64_t>(size) * (size - 1);
  int64_t bytes = kLargestSlot;
  while (bytes > kSmallestSlot &&
         bytes * pairs * static_cast<int64_t>(kSlotsOfChannel) > kChannelBudget)
    bytes /= 2;
  return bytes;
}

size_t SegmentBytes(int size) {
  const int64_t slot_bytes = SlotBytes(size);
  const size_t pairs = static_cast<size_t>(size) * (size - 1);
  return size * sizeof(RankBlock) + size * Channel::BytesFor(size - 1, slot_bytes) +
         2 * pairs * Channel::BytesFor(1, slot_bytes);
}

absl::Status SystemError(const std::string& what) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<host::FileDescriptor> CreateFileOf(size_t bytes) {
  host::FileDescriptor file(memfd_create("tandem-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return SystemError("cannot create shared memory (memfd_create)");
  // All pages now: later there would be no error to return, only a signal.
  if (const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    errno = error;
    return SystemError(absl::StrCat("shared memory of ", bytes, " bytes cannot be allocated"));
  }
  // A rank that shrank the file would end the others with SIGBUS.
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError("cannot seal shared memory");
  }
  return file;
}

absl::StatusOr<std::byte*> MapFile(const host::FileDescriptor& file, size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), /*offset=*/0);
  if (memory == MAP_FAILED) {
    return SystemError(absl::StrCat("shared memory of ", bytes, " bytes cannot be mapped"));
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

void Notice::SetTag(absl::string_view text) {
  const size_t length = std::min(text.size(), sizeof(tag) - 1);
  std::memset(tag, 0, sizeof(tag));
  std::memcpy(tag, text.data(), length);
}

size_t Channel::BytesFor(int num_readers, int64_t slot_bytes) {
  return sizeof(Cursor) * (1 + num_readers) +
         kSlotsOfChannel * (sizeof(Slot) + static_cast<size_t>(slot_bytes));
}

Channel::Channel(std::byte* memory, int num_readers, int64_t slot_bytes)
    : written_(reinterpret_cast<Cursor*>(memory)),
      read_(written_ + 1),
      slots_(memory + sizeof(Cursor) * (1 + num_readers)),
      num_readers_(num_readers),
      slot_bytes_(slot_bytes) {}

Channel::Slot* Channel::At(uint64_t index) const {
  return reinterpret_cast<Slot*>(slots_ + (index % kSlotsOfChannel) *
                                              (sizeof(Slot) + static_cast<size_t>(slot_bytes_)));
}

uint64_t Channel::SlowReaders() const {
  const uint64_t next = written_->slots.load(std::memory_order_relaxed);
  uint64_t slow = 0;
  for (int r = 0; r < num_readers_; ++r) {
    // Acquire: a slot that counts as read is overwritten, so its reader must be done with it.
    if (read_[r].slots.load(std::memory_order_acquire) + kSlotsOfChannel <= next)
      slow |= uint64_t{1} << r;
  }
  return slow;
}

Channel::Slot* Channel::NextToWrite() {
  return SlowReaders() == 0 ? At(written_->slots.load(std::memory_order_relaxed)) : nullptr;
}

bool Channel::HaveRead(uint64_t slots) const {
  for (int r = 0; r < num_readers_; ++r) {
    if (read_[r].slots.load(std::memory_order_acquire) < slots) return false;
  }
  return true;
}

// Release, with the acquire in NextToRead(): a reader that sees the count sees the slot's bytes.
void Channel::Publish() { written_->slots.fetch_add(1, std::memory_order_release); }

const Channel::Slot* Channel::NextToRead(int reader) const {
  const uint64_t next = read_[reader].slots.load(std::memory_order_relaxed);
  return written_->slots.load(std::memory_order_acquire) > next ? At(next) : nullptr;
}

// Release, with the acquires of the writer: all reads of the slot come before its reuse.
void Channel::Release(int reader) { read_[reader].slots.fetch_add(1, std::memory_order_release); }

absl::Status SharedSegment::Check() {
  constexpr size_t kBytes = 4096;
  absl::StatusOr<host::FileDescriptor> file = CreateFileOf(kBytes);
  if (!file.ok()) return file.status();
  absl::StatusOr<std::byte*> memory = MapFile(*file, kBytes);
  if (!memory.ok()) return memory.status();
  munmap(*memory, kBytes);
  return absl::OkStatus();
}

absl::StatusOr<host::FileDescriptor> SharedSegment::CreateFile(int size) {
  return CreateFileOf(SegmentBytes(size));
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Map(const host::FileDescriptor& file,
                                                                  int size) {
  const size_t expected = SegmentBytes(size);
  struct stat found = {};
  if (fstat(file.get(), &found) != 0) return SystemError("shared memory");
  if (static_cast<size_t>(found.st_size) != expected) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory of ", size, " ranks: expected ",
                                                   expected, " bytes, found ", found.st_size,
                                                   "; run the same build on every rank"));
  }
  absl::StatusOr<std::byte*> memory = MapFile(file, expected);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<SharedSegment>(new SharedSegment(*memory, expected, size));
}

SharedSegment::SharedSegment(std::byte* memory, size_t bytes, int size)
    : memory_(memory), bytes_(bytes), size_(size) {
  const int64_t slot_bytes = SlotBytes(size);
  std::byte* next = memory;
  ranks_ = reinterpret_cast<RankBlock*>(next);
  next += size * sizeof(RankBlock);
  const auto add = [&](int num_readers) {
    Channel channel(next, num_readers, slot_bytes);
    next += Channel::BytesFor(num_readers, slot_bytes);
    return channel;
  };
  for (int rank = 0; rank < size; ++rank) outboxes_.push_back(add(size - 1));
  for (std::vector<Channel>* channels : {&pairs_, &messages_}) {
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < size; ++to) channels->push_back(from == to ? Channel() : add(1));
    }
  }
}

SharedSegment::~SharedSegment() { munmap(memory_, bytes_); }

}  // namespace tandem::comm
