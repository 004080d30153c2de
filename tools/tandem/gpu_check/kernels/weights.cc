// The copies, casts and digests of weight updates.
#include <ATen/ATen.h>

#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/weights/device_ops.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"

namespace tandem::gpu_check {
namespace {

using weights::WireElement;

int64_t Below(int64_t end, std::mt19937_64& random) {
  return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
}

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// The device's operations; on a CPU they run in order, too.
struct Ops {
  explicit Ops(at::Device device) {
    absl::StatusOr<std::unique_ptr<weights::DeviceOps>> made = weights::CreateDeviceOps(device);
    ThrowIfError(made.status());
    ops = *std::move(made);
    entered = ops->Enter();
  }
  weights::DeviceOps* operator->() const { return ops.get(); }

  std::unique_ptr<weights::DeviceOps> ops;
  std::shared_ptr<void> entered;
};

const std::byte* BytesOf(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}
std::byte* MutableBytesOf(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

at::Tensor RandomBytes(const Comparer& comparer, int64_t size) {
  return at::randint(0, 256, {size}, at::kByte).to(comparer.device());
}

}  // namespace

void CompareWeightCopies(Comparer& comparer) {
  const int64_t size = comparer.small() ? 1 << 16 : 4 << 20;
  const at::Tensor source = RandomBytes(comparer, size);
  const at::Tensor found = at::zeros_like(source), expected = at::zeros_like(source);
  std::mt19937_64 random(1);
  std::vector<weights::CopyRun> runs;
  for (int64_t to = 0; to < size - 25'000;) {
    weights::CopyRun run;
    run.size = 1 + Below(5000, random);
    run.repeat = 1 + Below(4, random);
    run.from_stride = run.size + Below(100, random);
    run.to_stride = run.size + Below(100, random);
    const int64_t from = Below(size - run.from_stride * run.repeat, random);
    run.from = BytesOf(source) + from;
    run.to = MutableBytesOf(found) + to;
    for (int64_t i = 0; i < run.repeat; ++i) {
      expected.narrow(0, to + i * run.to_stride, run.size)
          .copy_(source.narrow(0, from + i * run.from_stride, run.size));
    }
    runs.push_back(run);
    to += run.to_stride * run.repeat;
  }
  const Ops ops(comparer.device());
  ThrowIfError(ops->Copy(runs));
  ThrowIfError(ops->Synchronize());
  comparer.ExpectEqual(found, expected, absl::StrCat(runs.size(), " runs of any alignment"));
}

void CompareWeightCasts(Comparer& comparer) {
  const int64_t repeat = comparer.small() ? 3 : 100, length = 4099, stride = 8192;
  const at::Tensor master = comparer.Random({repeat * stride}) * 1e3;
  const at::Tensor rows = master.view({repeat, stride}).narrow(1, 3, length);
  for (const auto& [element, type] : {std::pair{WireElement::kFloat32, at::kFloat},
                                      std::pair{WireElement::kBfloat16, at::kBFloat16},
                                      std::pair{WireElement::kFloat16, at::kHalf}}) {
    const at::Tensor found = at::zeros({repeat, length}, comparer.options().dtype(type));
    weights::CastRun run;
    run.from = master.const_data_ptr<float>() + 3;
    run.to = MutableBytesOf(found);
    run.length = length;
    run.repeat = repeat;
    run.from_stride = stride;
    const Ops ops(comparer.device());
    ThrowIfError(ops->Cast(element, {run}));
    ThrowIfError(ops->Synchronize());
    comparer.ExpectEqual(found, rows.to(type), absl::StrCat("to ", c10::toString(type)));
  }
}

void CompareWeightDigests(Comparer& comparer) {
  const int64_t size = comparer.small() ? 1 << 17 : 9 << 20;
  const at::Tensor source = RandomBytes(comparer, size);
  // ATen knows no digest: the host's is the reference.
  const at::Tensor on_host = source.cpu();
  std::mt19937_64 random(1);
  std::vector<weights::DigestRun> here, there;
  for (int i = 0; i < (comparer.small() ? 20 : 300); ++i) {  // several launches
    weights::DigestRun run;
    run.row_bytes = 2 * (1 + Below(i % 7 == 0 && !comparer.small() ? 400'000 : 3000, random));
    run.rows = 1 + Below(9, random);
    run.stride = run.row_bytes + 2 * Below(5000, random);
    run.offset = 2 * Below(1 << 20, random);
    run.slot = static_cast<int32_t>(Below(5, random));
    const int64_t at = 2 * Below((size - run.row_bytes * run.rows) / 2, random);
    run.bytes = BytesOf(on_host) + at;
    here.push_back(run);
    run.bytes = BytesOf(source) + at;
    there.push_back(run);
  }
  std::vector<weights::DigestSum> expected(5), found(5);
  ThrowIfError(weights::CpuOps().Digest(here, absl::MakeSpan(expected)));
  const Ops ops(comparer.device());
  ThrowIfError(ops->Digest(there, absl::MakeSpan(found)));
  std::vector<double> same;
  for (size_t i = 0; i < found.size(); ++i) same.push_back(found[i] == expected[i] ? 1 : 0);
  comparer.ExpectEqual(at::tensor(same), at::ones({5}), "sums of rows of any length");
}

}  // namespace tandem::gpu_check
