#include "tools/tandem/plan/memory_ledger.h"

#include <algorithm>
#include <numeric>

namespace tandem::plan {
namespace {

constexpr std::array<const char*, kNumMemoryKinds> kNames = {
    "parameters",       "gradients",   "optimizer", "reference", "critic",  "gathered units",
    "gradient buffers", "activations", "head",      "batch",     "transfer"};

}  // namespace

const char* MemoryKindName(MemoryKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::string MemoryKindKey(MemoryKind kind) {
  std::string key = MemoryKindName(kind);
  std::replace(key.begin(), key.end(), ' ', '_');
  return key;
}

int64_t MemorySnapshot::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

Size MemoryLedger::Take(MemoryKind kind, int64_t bytes) {
  now_.bytes[static_cast<size_t>(kind)] += bytes;
  total_ += bytes;
  if (total_ > peak_total_) {
    peak_total_ = total_;
    peak_ = now_;
    peak_.place = place_;
  }
  return Size(this, [this, kind, bytes](const void*) {
    now_.bytes[static_cast<size_t>(kind)] -= bytes;
    total_ -= bytes;
  });
}

void MemoryLedger::Reach(const KindBytes& change) {
  const int64_t total = total_ + std::accumulate(change.begin(), change.end(), int64_t{0});
  if (total <= peak_total_) return;
  peak_total_ = total;
  for (size_t i = 0; i < change.size(); ++i) peak_.bytes[i] = now_.bytes[i] + change[i];
  peak_.place = place_;
}

void MemoryLedger::ForgetPeak() {
  peak_total_ = total_;
  peak_ = now_;
  peak_.place = place_;
}

}  // namespace tandem::plan
