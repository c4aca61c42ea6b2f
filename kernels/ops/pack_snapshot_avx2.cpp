#include "kernels/simd/avx2.h"

#include "kernels/ops/pack_snapshot_vector.h"

namespace hyb::kernels::avx2 {

void pack_rows(const SnapshotRows<const float>& job) { pack_all(job); }
void pack_rows(const SnapshotRows<const bf16>& job) { pack_all(job); }
void unpack_rows(const SnapshotRows<float>& job) { unpack_all(job); }
void unpack_rows(const SnapshotRows<bf16>& job) { unpack_all(job); }

}  // namespace hyb::kernels::avx2
