namespace hyb {}
