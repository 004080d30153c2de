#include "common/weights/reshard_receiver.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/guarded_words.h"
#include "common/comm/link_facts.h"
#include "common/comm/wait_on_host.h"
#include "common/status/status_macros.h"
#include "common/weights/delta_codec.h"
#include "common/weights/tensor_bytes.h"

namespace tandem::weights {
namespace {

using Clock = PhaseTimes::Clock;

absl::Status Finish(const comm::ProcessGroup& group, std::unique_ptr<comm::Work>& work) {
  if (work == nullptr) return absl::OkStatus();
  const absl::Status status = comm::WaitOnHost(group, *work);
  work.reset();
  return status;
}

// When the last of them had arrived.
Clock::time_point ArrivalOf(const std::vector<std::unique_ptr<comm::Work>>& works) {
  Clock::time_point last;
  for (const auto& work : works) last = std::max(last, comm::CompletedAt(*work));
  return last;
}

at::Tensor TensorOf(absl::Span<std::byte> bytes, at::Device device) {
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())},
                       at::TensorOptions(at::kByte).device(device));
}

}  // namespace

absl::Status ReshardReceiver::Apply(const at::Tensor& coded, const at::Tensor& next) {
  if (ops_.on_host()) return ApplyDelta(BytesOf(coded), BytesOf(next)).status();
  const at::Tensor delta = host_coded_.narrow(0, 0, coded.numel());
  const at::Tensor buffer = host_base_.narrow(0, 0, next.numel());
  RETURN_IF_ERROR(ops_.Transfer(coded, delta));
  RETURN_IF_ERROR(ops_.Transfer(next, buffer));
  RETURN_IF_ERROR(ApplyDelta(BytesOf(delta), BytesOf(buffer)).status());
  return ops_.Transfer(buffer, next);
}

absl::StatusOr<int64_t> ReshardReceiver::ReadSize(const at::Tensor& words) {
  if (ops_.on_host()) return comm::ReadGuarded<1>(words)[0];
  const at::Tensor here = comm::RoomForWords<1>();
  RETURN_IF_ERROR(ops_.Transfer(words, here));
  return comm::ReadGuarded<1>(here)[0];
}

absl::StatusOr<int> ReshardReceiver::SourceOf(const TransferPlan& plan, const ReceiveLinks& links,
                                              int bucket) {
  const int source = links.fed_by.value_or(plan.buckets[bucket].source());
  if (source >= 0 && source < links.from->size() && source != links.from->rank()) return source;
  return absl::InvalidArgumentError(absl::StrCat(plan.BucketName(bucket), ": its source is rank ",
                                                 source, "; this is rank ", links.from->rank(),
                                                 " of ", links.from->size()));
}

absl::Status ReshardReceiver::Receive(const TransferPlan& plan, const ReceiveLinks& links,
                                      bool delta, BucketSink& sink, PhaseTimes& times) {
  const auto entered = ops_.Enter();
  absl::Status status =
      delta ? ReceiveDeltas(plan, links, sink, times) : ReceiveWhole(plan, links, sink, times);
  if (status.ok() && links.relay != nullptr) status = links.relay->Finish(times);
  // Operations in flight may still write to them; the next update gets others.
  if (!status.ok()) buffers_.clear();
  return status;
}

absl::Status ReshardReceiver::ReceiveWhole(const TransferPlan& plan, const ReceiveLinks& links,
                                           BucketSink& sink, PhaseTimes& times) {
  const int count = static_cast<int>(plan.buckets.size());
  const int window = MessagesUnderWay(plan.largest_bucket_bytes);
  // Forwarding reads from where the message landed: half of the slots stay reserved for it.
  const int behind = links.forward == nullptr ? 0 : window / 2;
  // A bucket in flight: its spans, where each lands, and whether that is its final place.
  struct Slot {
    std::vector<BucketSpan> spans;
    std::vector<at::Tensor> landing;
    std::vector<bool> in_place;
    Works arriving;
    Works leaving;  // also of the slot's previous bucket
    Clock::time_point posted;
  };
  std::vector<Slot> slots(window);
  buffers_.resize(std::max<size_t>(buffers_.size(), window));
  auto* const taking = dynamic_cast<comm::TakingGroup*>(links.from);
  const auto post = [&](int b) -> absl::Status {
    Slot& slot = slots[b % window];
    slot.posted = Clock::now();
    slot.spans = SpansOf(plan.buckets[b], plan.tensor_bytes);
    slot.landing.clear();
    slot.in_place.clear();
    ASSIGN_OR_RETURN(const int source, SourceOf(plan, links, b));
    for (const BucketSpan& span : slot.spans) {
      const absl::Span<std::byte> place = sink.Place(b, span);
      slot.in_place.push_back(!place.empty());
      if (place.empty()) {
        at::Tensor& buffer = buffers_[b % window];
        RETURN_IF_ERROR(Provide(ops_, plan.largest_bucket_bytes, buffer));
        slot.landing.push_back(buffer.narrow(0, span.bucket_offset, span.size_bytes));
      } else {
        slot.landing.push_back(TensorOf(place, ops_.device()));
      }
      const at::Tensor& landing = slot.landing.back();
      comm::MessageTaker* const taker =
          taking == nullptr ? nullptr : sink.Taker(b, span, links.forward != nullptr);
      auto work = taker == nullptr
                      ? links.from->Receive(landing, source, plan.BucketName(b))
                      : taking->ReceiveWith(landing, source, plan.BucketName(b), *taker);
      RETURN_IF_ERROR(work.status());
      slot.arriving.push_back(*std::move(work));
    }
    return absl::OkStatus();
  };
  for (int b = 0; b < std::min(count, window); ++b) RETURN_IF_ERROR(post(b)) << "phase wire";
  for (int b = 0; b < count; ++b) {
    Slot& slot = slots[b % window];
    const std::vector<BucketSpan> spans = slot.spans;
    const Clock::time_point wait_start = Clock::now();
    const Clock::duration taken_before = sink.taken_time();
    RETURN_IF_ERROR(comm::WaitForAll(links.from, slot.arriving))
        << "phase wire, " << plan.BucketName(b);
    if (links.times != nullptr) {
      ASSIGN_OR_RETURN(const int source, SourceOf(plan, links, b));
      links.times->Arrived(source, plan.buckets[b].size_bytes(), slot.posted,
                           ArrivalOf(slot.arriving));
    }
    slot.arriving.clear();
    // Counts the takers' work during this wait as theirs.
    const Clock::duration taken = sink.taken_time() - taken_before;
    const double taken_seconds = std::chrono::duration<double>(taken).count();
    times.Add("unpack", taken_seconds, taken_seconds);
    Clock::time_point now = times.Waited("wire", slot.posted + taken, wait_start + taken);
    if (links.forward != nullptr) {
      for (const at::Tensor& bytes : slot.landing) {
        ASSIGN_OR_RETURN(auto work,
                         links.forward->Send(bytes, links.forward_to, plan.BucketName(b)));
        slot.leaving.push_back(std::move(work));
      }
    }
    for (size_t i = 0; i < spans.size(); ++i) {
      if (slot.in_place[i]) continue;
      RETURN_IF_ERROR(sink.Unpack(b, spans[i], buffers_[b % window]))
          << "phase unpack, " << plan.BucketName(b);
    }
    now = times.Worked("unpack", now);
    // The next bucket travels while this one is digested.
    if (const int next = b - behind + window; next >= window && next < count) {
      RETURN_IF_ERROR(comm::FinishAll(links.forward, slots[next % window].leaving))
          << "phase forward, " << plan.BucketName(next - window);
      now = times.Worked("forward", now);
      RETURN_IF_ERROR(post(next)) << "phase wire";
    }
    RETURN_IF_ERROR(sink.Digest(b)) << "phase verify, " << plan.BucketName(b);
    times.Worked("verify", now);
    if (links.relay != nullptr) RETURN_IF_ERROR(links.relay->Pass(b, times));
  }
  const Clock::time_point start = Clock::now();
  for (int b = std::max(0, count - window); b < count; ++b) {
    RETURN_IF_ERROR(comm::FinishAll(links.forward, slots[b % window].leaving))
        << "phase forward, " << plan.BucketName(b);
  }
  times.Worked("forward", start);
  return absl::OkStatus();
}

absl::Status ReshardReceiver::ReceiveDeltas(const TransferPlan& plan, const ReceiveLinks& links,
                                            BucketSink& sink, PhaseTimes& times) {
  const int count = static_cast<int>(plan.buckets.size());
  const int64_t room = MaxEncodedBytes(plan.largest_bucket_bytes);
  // Frees the receive buffers of complete buckets first.
  buffers_.resize(2);
  for (at::Tensor& buffer : buffers_) {
    if (buffer.defined() && buffer.numel() < room) buffer = at::Tensor();
  }
  RETURN_IF_ERROR(Provide(ops_, plan.largest_bucket_bytes, base_));
  std::array<at::Tensor, 2> sizes = {comm::RoomForWords<1>(), comm::RoomForWords<1>()};
  if (!ops_.on_host()) {
    RETURN_IF_ERROR(ProvideOnHost(ops_, room, host_coded_));
    RETURN_IF_ERROR(ProvideOnHost(ops_, plan.largest_bucket_bytes, host_base_));
    for (at::Tensor& size : sizes) {
      ASSIGN_OR_RETURN(const at::Tensor bytes, ops_.Buffer(static_cast<int64_t>(size.nbytes())));
      size = bytes.view(at::kLong);
    }
  }
  std::array<std::unique_ptr<comm::Work>, 2> announced;
  std::array<Works, 2> leaving;
  std::array<Clock::time_point, 2> posted;
  const auto post = [&](int b) -> absl::Status {
    RETURN_IF_ERROR(comm::FinishAll(links.forward, leaving[b % 2])) << "phase forward";
    posted[b % 2] = Clock::now();
    ASSIGN_OR_RETURN(const int source, SourceOf(plan, links, b));
    ASSIGN_OR_RETURN(announced[b % 2],
                     links.from->Receive(sizes[b % 2], source, plan.BucketName(b)));
    return absl::OkStatus();
  };
  if (count > 0) RETURN_IF_ERROR(post(0)) << "phase wire";
  for (int b = 0; b < count; ++b) {
    const std::string name = plan.BucketName(b);
    const Clock::time_point wait_start = Clock::now();
    RETURN_IF_ERROR(Finish(*links.from, announced[b % 2])) << "phase wire, " << name;
    ASSIGN_OR_RETURN(const int64_t coded, ReadSize(sizes[b % 2]));
    const int64_t bytes = plan.buckets[b].size_bytes();
    // Before the receive is posted, which with a wrong length would wait until the deadline.
    if (coded < kDeltaHeaderBytes || coded > MaxEncodedBytes(bytes)) {
      return absl::DataLossError(absl::StrCat("phase wire, ", name, ": a delta of ", coded,
                                              " bytes for a bucket of ", bytes));
    }
    RETURN_IF_ERROR(Provide(ops_, room, buffers_[b % 2]));
    at::Tensor delta = buffers_[b % 2].narrow(0, 0, coded);
    ASSIGN_OR_RETURN(const int source, SourceOf(plan, links, b));
    ASSIGN_OR_RETURN(auto arriving, links.from->Receive(delta, source, name));
    RETURN_IF_ERROR(comm::WaitOnHost(*links.from, *arriving)) << "phase wire, " << name;
    if (links.times != nullptr) {
      links.times->Arrived(source, static_cast<int64_t>(sizes[b % 2].nbytes()) + coded,
                           posted[b % 2], comm::CompletedAt(*arriving));
    }
    arriving.reset();
    Clock::time_point now = times.Waited("wire", posted[b % 2], wait_start);
    if (links.forward != nullptr) {
      for (const at::Tensor& bytes : {sizes[b % 2], delta}) {
        ASSIGN_OR_RETURN(auto work, links.forward->Send(bytes, links.forward_to, name));
        leaving[b % 2].push_back(std::move(work));
      }
    }
    if (b + 1 < count) RETURN_IF_ERROR(post(b + 1)) << "phase wire";
    at::Tensor next = base_.narrow(0, 0, bytes);
    RETURN_IF_ERROR(sink.Collect(b, next)) << "phase unpack, " << name;
    RETURN_IF_ERROR(Apply(delta, next)) << "phase unpack, " << name;
    RETURN_IF_ERROR(sink.Unpack(b, WholeBucket(plan.buckets[b]), next)) << "phase unpack, " << name;
    now = times.Worked("unpack", now);
    RETURN_IF_ERROR(sink.Digest(b)) << "phase verify, " << name;
    times.Worked("verify", now);
    if (links.relay != nullptr) RETURN_IF_ERROR(links.relay->Pass(b, times));
  }
  const Clock::time_point start = Clock::now();
  for (Works& works : leaving)
    RETURN_IF_ERROR(comm::FinishAll(links.forward, works)) << "phase forward";
  times.Worked("forward", start);
  return absl::OkStatus();
}

}  // namespace tandem::weights
