// Dynamics of a batch by Pinocchio in a loop over the samples; for the benchmarks, which load this file as a shared library.
//
// Only headers are used, so that everything is compiled for this processor, in single and in double precision. Of the joints there is
// the hinge about z, the only one of the benchmarks' mechanisms: Pinocchio then need not ask at run time which kind a joint is.

// Boost's limits, raised as Pinocchio's own build does.
#define BOOST_FUSION_INVOKE_MAX_ARITY 10
#define BOOST_MPL_CFG_NO_PREPROCESSED_HEADERS
#define BOOST_MPL_LIMIT_LIST_SIZE 30
#define BOOST_MPL_LIMIT_VECTOR_SIZE 30

#include <pinocchio/multibody.hpp>

#include <pinocchio/algorithm/aba-derivatives.hpp>
#include <pinocchio/algorithm/aba.hpp>
#include <pinocchio/algorithm/crba.hpp>
#include <pinocchio/algorithm/kinematics.hpp>
#include <pinocchio/algorithm/rnea.hpp>
#include <thread>
#include <vector>

template <typename Scalar_, int Options_>
struct Hinges {
  typedef Scalar_ Scalar;
  static constexpr int Options = Options_;
  typedef pinocchio::JointModelRevoluteTpl<Scalar, Options, 2> JointModelRZ;
  typedef pinocchio::JointDataRevoluteTpl<Scalar, Options, 2> JointDataRZ;
  typedef pinocchio::JointModelMimicTpl<Scalar, Options, ::Hinges> JointModelMimic;  // Pinocchio itself asks for this one
  typedef pinocchio::JointDataMimicTpl<Scalar, Options, ::Hinges> JointDataMimic;
  typedef boost::variant<JointModelRZ, boost::recursive_wrapper<JointModelMimic>> JointModelVariant;
  typedef boost::variant<JointDataRZ, boost::recursive_wrapper<JointDataMimic>> JointDataVariant;
};

namespace {

// Numbers of one body, in this order in memory: rotation (rows) and translation of its joint in the parent, mass, mass center,
// inertia about it (rows).
constexpr int BODY_NUMBERS = 9 + 3 + 1 + 3 + 9;

template <typename Scalar>
struct Robot {
  typedef pinocchio::ModelTpl<Scalar, 0, Hinges> Model;
  typedef pinocchio::DataTpl<Scalar, 0, Hinges> Data;
  typedef Eigen::Matrix<Scalar, Eigen::Dynamic, 1> Vector;
  typedef Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> Rows;
  typedef Eigen::Matrix<double, 3, 3, Eigen::RowMajor> Matrix3;

  Model model;
  std::vector<Data> data;  // one for each thread

  Robot(int bodies, const int* parents, const double* numbers, const double* gravity, int threads) {
    typedef pinocchio::SE3Tpl<Scalar> Placement;
    for (int i = 0; i < bodies; ++i, numbers += BODY_NUMBERS) {
      const Matrix3 rotation = Eigen::Map<const Matrix3>(numbers), inertia = Eigen::Map<const Matrix3>(numbers + 16);
      const Eigen::Vector3d translation(numbers + 9), center(numbers + 13);
      const Placement placement(rotation.cast<Scalar>(), translation.cast<Scalar>());
      const auto joint = model.addJoint(
          parents[i] + 1, typename Hinges<Scalar, 0>::JointModelRZ(), placement, "joint" + std::to_string(i));
      const pinocchio::Symmetric3Tpl<Scalar, 0> symmetric(inertia.cast<Scalar>().eval());
      model.appendBodyToJoint(
          joint, pinocchio::InertiaTpl<Scalar>(Scalar(numbers[12]), center.cast<Scalar>(), symmetric), Placement::Identity());
    }
    model.gravity.linear() = Eigen::Map<const Eigen::Vector3d>(gravity).cast<Scalar>();
    for (int thread = 0; thread < threads; ++thread) data.emplace_back(model);
  }

  // One sample; `last` holds accelerations or forces, `out` is as long as Python's side says.
  void sample(int function, Data& d, const Scalar* q_, const Scalar* v_, const Scalar* last_, Scalar* out) const {
    const int n = model.nv;
    const Eigen::Map<const Vector> q(q_, n), v(v_, n), last(last_, n);
    Eigen::Map<Vector> vector(out, n);
    Eigen::Map<Rows> matrix(out, n, n), second(out + n * n, n, n);
    switch (function) {
      case 0:  // placement of every body: rotation and translation
        pinocchio::forwardKinematics(model, d, q);
        for (int i = 1; i <= n; ++i, out += 12) {
          Eigen::Map<Eigen::Matrix<Scalar, 3, 3, Eigen::RowMajor>> rotation(out);
          Eigen::Map<Eigen::Matrix<Scalar, 3, 1>> translation(out + 9);
          rotation = d.oMi[i].rotation();
          translation = d.oMi[i].translation();
        }
        break;
      case 1:
        vector = pinocchio::rnea(model, d, q, v, last);
        break;
      case 2:
        pinocchio::crba(model, d, q);
        matrix = d.M.template selfadjointView<Eigen::Upper>();
        break;
      case 3:
        vector = pinocchio::aba(model, d, q, v, last);
        break;
      case 4:
        matrix = pinocchio::computeCoriolisMatrix(model, d, q, v);
        break;
      case 5:  // by q, then by v
        pinocchio::computeABADerivatives(model, d, q, v, last);
        matrix = d.ddq_dq;
        second = d.ddq_dv;
        break;
    }
  }

  void batch(int function, long samples, long size, const Scalar* q, const Scalar* v, const Scalar* last, Scalar* out) {
    const int n = model.nv, threads = int(data.size());
    auto part = [&](int thread) {
      for (long i = samples * thread / threads; i < samples * (thread + 1) / threads; ++i)
        sample(function, data[thread], q + i * n, v + i * n, last + i * n, out + i * size);
    };
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(part, thread);
    part(0);
    for (auto& other : others) other.join();
  }
};

}  // namespace

#define ROBOT_IN(NAME, SCALAR)                                                                                              \
  extern "C" void* create_##NAME(                                                                                            \
      int bodies, const int* parents, const double* numbers, const double* gravity, int threads) {                           \
    return new Robot<SCALAR>(bodies, parents, numbers, gravity, threads);                                                    \
  }                                                                                                                          \
  extern "C" void evaluate_##NAME(                                                                                           \
      void* robot, int function, long samples, long size, const SCALAR* q, const SCALAR* v, const SCALAR* last, SCALAR* out) { \
    static_cast<Robot<SCALAR>*>(robot)->batch(function, samples, size, q, v, last, out);                                     \
  }

ROBOT_IN(float32, float)
ROBOT_IN(float64, double)
